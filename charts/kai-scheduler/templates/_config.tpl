{{/* A component of the Config: how it is deployed. Takes (dict "root" $ "values" VALUES), optionally with "enabled". */}}
{{- define "kai.service" -}}
{{- if hasKey . "enabled" }}
enabled: {{ .enabled }}
{{- else if hasKey .values "enabled" }}
enabled: {{ .values.enabled }}
{{- end }}
image:
  {{- include "kai.configImage" (dict "root" .root "image" .values.image) | nindent 2 }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.podDisruptionBudget }}
podDisruptionBudget:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The specification of the Config. */}}
{{- define "kai.configSpec" -}}
{{- $values := .Values -}}
{{- $global := .Values.global -}}
namespace: {{ .Release.Namespace | quote }}
global:
  replicaCount: {{ $values.operator.replicaCount | default 1 }}
  queueLabelKey: {{ $values.podgrouper.queueLabelKey | quote }}
  {{- if include "kai.openshift" . }}
  openshift: true
  {{- end }}
  {{- with $global.securityContext }}
  securityContext:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $global.imagePullSecrets }}
  additionalImagePullSecrets:
    {{- range . }}
    - {{ .name | quote }}
    {{- end }}
  {{- end }}
  {{- range $key := list "affinity" "nodeSelector" "tolerations" "daemonsetsTolerations" "namespaceLabelSelector" "podLabelSelector" "vpa" }}
  {{- with get $global $key }}
  {{ $key }}:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- range $key := list "requireDefaultPodAntiAffinityTerm" "jsonLog" }}
  {{- if get $global $key }}
  {{ $key }}: true
  {{- end }}
  {{- end }}
  {{- range $key := list "priorityClassName" "nodePoolLabelKey" }}
  {{- with get $global $key }}
  {{ $key }}: {{ . | quote }}
  {{- end }}
  {{- end }}
podGrouper:
  service:
    {{- include "kai.service" (dict "root" . "values" $values.podgrouper) | nindent 4 }}
  args:
    genericKartaFallback: {{ $values.podgrouper.genericKartaFallback }}
podGroupController:
  service:
    {{- include "kai.service" (dict "root" . "values" $values.podgroupcontroller) | nindent 4 }}
queueController:
  service:
    {{- include "kai.service" (dict "root" . "values" $values.queuecontroller) | nindent 4 }}
binder:
  {{- include "kai.configBinder" . | nindent 2 }}
admission:
  {{- include "kai.configAdmission" . | nindent 2 }}
scheduler:
  service:
    {{- include "kai.service" (dict "root" . "values" $values.scheduler) | nindent 4 }}
  schedulerService:
    port: {{ $values.scheduler.ports.metricsPort }}
nodeScaleAdjuster:
  service:
    {{- include "kai.service" (dict "root" . "values" $values.nodescaleadjuster "enabled" $global.clusterAutoscaling) | nindent 4 }}
  args:
    nodeScaleNamespace: {{ $values.nodescaleadjuster.scalingPodNamespace | quote }}
    scalingPodImage:
      {{- include "kai.configImage" (dict "root" . "image" $values.nodescaleadjuster.scalingPodImage) | nindent 6 }}
numaPlacementExporter:
  {{- $exporter := $values.numaPlacementExporter }}
  service:
    {{- include "kai.service" (dict "root" . "values" $exporter) | nindent 4 }}
  {{- range $key := list "nodeSelector" "tolerations" }}
  {{- with get $exporter $key }}
  {{ $key }}:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- range $key := list "pollInterval" "driftResyncInterval" "podResourcesHostPath" "podResourcesSocket" "sysfsHostPath" }}
  {{- with get $exporter $key }}
  {{ $key }}: {{ . | quote }}
  {{- end }}
  {{- end }}
{{- $prometheus := $values.prometheus | default dict }}
{{- if or $prometheus.enabled $prometheus.externalPrometheusUrl }}
prometheus:
  {{- if $prometheus.enabled }}
  enabled: true
  {{- end }}
  {{- with $prometheus.externalPrometheusUrl }}
  externalPrometheusUrl: {{ . | quote }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "kai.configBinder" -}}
{{- $binder := .Values.binder -}}
{{- $reservation := .Values.global.resourceReservation -}}
service:
  {{- include "kai.service" (dict "root" . "values" $binder) | nindent 2 }}
metricsPort: {{ $binder.ports.metricsPort }}
{{- if hasKey $binder "cdiEnabled" }}
cdiEnabled: {{ $binder.cdiEnabled }}
{{- end }}
{{- with $binder.plugins }}
plugins:
  {{- toYaml . | nindent 2 }}
{{- end }}
resourceReservation:
  namespace: {{ $reservation.namespace | quote }}
  serviceAccountName: {{ $reservation.serviceAccount | quote }}
  appLabel: {{ $reservation.appLabel | quote }}
  image:
    {{- include "kai.configImage" (dict "root" . "image" $binder.resourceReservationImage) | nindent 4 }}
  {{- with $binder.runtimeClassName }}
  runtimeClassName: {{ . | quote }}
  {{- end }}
  {{- with $binder.resourceReservationPodResources }}
  podResources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{- define "kai.configAdmission" -}}
{{- $admission := .Values.admission -}}
service:
  {{- include "kai.service" (dict "root" . "values" $admission) | nindent 2 }}
gpuSharing: {{ .Values.global.gpuSharing }}
blockNvidiaVisibleDevices: {{ .Values.global.blockNvidiaVisibleDevices }}
queueLabelSelector: {{ $admission.queueLabelSelector | default false }}
webhook:
  port: 443
  targetPort: {{ $admission.ports.webhookPort }}
  probePort: {{ $admission.ports.probePort }}
  metricsPort: {{ $admission.ports.metricsPort }}
gpuFractionRuntimeClassName: {{ $admission.gpuFractionRuntimeClassName | quote }}
{{- with $admission.gpuPodRuntimeClassName }}
gpuPodRuntimeClassName: {{ . | quote }}
{{- end }}
{{- end -}}

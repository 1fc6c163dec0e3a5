{{/* Whether the cluster is OpenShift: "true" or empty. */}}
{{- define "kai.openshift" -}}
{{- if or .Values.openshift (lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "clusterversions.config.openshift.io") -}}true{{- end -}}
{{- end -}}

{{/* Whether one process runs all components: "true" or empty. */}}
{{- define "kai.combined" -}}
{{- if eq (.Values.topology | default "separate") "combined" -}}true{{- end -}}
{{- end -}}

{{/* Whether the rights of a topology are granted: it is chosen, or its processes still run, until the operator has replaced them.
     The lookup finds nothing when a GitOps tool renders. Takes (dict "root" $ "topology" NAME): "true" or empty. */}}
{{- define "kai.runs" -}}
{{- $chosen := .root.Values.topology | default "separate" -}}
{{- $runs := eq .topology $chosen -}}
{{- $others := list "kai-operator" "node-scale-adjuster" -}}
{{- range (lookup "apps/v1" "Deployment" .root.Release.Namespace "").items -}}
{{- $isCombined := eq .metadata.name "kai-all" -}}
{{- if and (eq $.topology "combined") $isCombined -}}{{- $runs = true -}}{{- end -}}
{{- if and (eq $.topology "separate") (not $isCombined) (not (has .metadata.name $others)) (eq (dig "metadata" "labels" "app.kubernetes.io/managed-by" "" .) "kai-operator") -}}{{- $runs = true -}}{{- end -}}
{{- end -}}
{{- if $runs -}}true{{- end -}}
{{- end -}}

{{/* Annotations of the Config, whose definition has no field for them. */}}
{{- define "kai.configAnnotations" -}}
{{- if include "kai.combined" . -}}
kai.scheduler/process-topology: combined
{{- end -}}
{{- end -}}

{{/* Whether an object belongs to another owner: it exists, and not by this release. An object of this release stays in it, or else
     an upgrade would delete it and a rollback could not restore it. Takes (dict "root" $ "found" OBJECT): "true" or empty. */}}
{{- define "kai.ofOthers" -}}
{{- $release := dict -}}
{{- if .found -}}{{- $release = .found.metadata.annotations | default dict -}}{{- end -}}
{{- $own := and (eq (get $release "meta.helm.sh/release-name") .root.Release.Name) (eq (get $release "meta.helm.sh/release-namespace") .root.Release.Namespace) -}}
{{- if and .found (not $own) -}}true{{- end -}}
{{- end -}}

{{/* The tag of an image. Takes (dict "root" $ "image" IMAGE). */}}
{{- define "kai.tag" -}}
{{- $global := .root.Values.global -}}
{{- $tag := .image.tag | default $global.tag | default .root.Chart.AppVersion -}}
{{- $tag -}}{{- if or $global.fips (eq (toString $global.fipsMode) "on") -}}-fips{{- end -}}
{{- end -}}

{{/* The address of an image. Takes (dict "root" $ "image" IMAGE). */}}
{{- define "kai.image" -}}
{{- .image.registry | default .root.Values.global.registry -}}/{{- .image.name -}}:{{- include "kai.tag" . -}}
{{- end -}}

{{/* The pull policy of an image. Takes (dict "root" $ "image" IMAGE). */}}
{{- define "kai.pullPolicy" -}}
{{- .image.pullPolicy | default .root.Values.global.imagePullPolicy -}}
{{- end -}}

{{/* An image of the Config. Takes (dict "root" $ "image" IMAGE). */}}
{{- define "kai.configImage" -}}
name: {{ .image.name | quote }}
repository: {{ .image.registry | default .root.Values.global.registry | quote }}
tag: {{ include "kai.tag" . | quote }}
pullPolicy: {{ include "kai.pullPolicy" . | quote }}
{{- end -}}

{{/* Metadata of an object. Takes (dict "root" $ "name" NAME), optionally with "namespace", "labels" and "annotations". */}}
{{- define "kai.metadata" -}}
name: {{ .name | quote }}
{{- with .namespace }}
namespace: {{ . | quote }}
{{- end }}
{{- with include "kai.podMetadata" . }}
{{ . }}
{{- end }}
{{- end -}}

{{/* Labels and annotations of an object or of a pod template. Takes (dict "root" $), optionally with "labels" and "annotations". */}}
{{- define "kai.podMetadata" -}}
{{- $global := .root.Values.global -}}
{{- $metadata := dict -}}
{{- with merge (dict) (.labels | default dict) ($global.additionalLabels | default dict) }}{{ $_ := set $metadata "labels" . }}{{ end -}}
{{- with merge (dict) (.annotations | default dict) ($global.additionalAnnotations | default dict) }}{{ $_ := set $metadata "annotations" . }}{{ end -}}
{{- if $metadata }}{{ toYaml $metadata }}{{ end -}}
{{- end -}}

{{/* The security context of a container of operator and hooks: that of the values, or else all that the program can do without. */}}
{{- define "kai.securityContext" -}}
{{- if .Values.global.securityContext -}}
{{ toYaml .Values.global.securityContext }}
{{- else -}}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
readOnlyRootFilesystem: true
runAsNonRoot: true
seccompProfile:
  type: RuntimeDefault
{{- end -}}
{{- end -}}

{{/* Annotations of objects that stay when the release is deleted. */}}
{{- define "kai.keep" -}}
helm.sh/resource-policy: keep
argocd.argoproj.io/sync-options: Prune=false
{{- end -}}

{{/* Annotations of hooks. Take the weight. */}}
{{- define "kai.preHook" -}}
helm.sh/hook: pre-install,pre-upgrade
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: hook-succeeded,before-hook-creation
{{- end -}}
{{/* Also after a rollback: the Config is not an object of the release, so helm does not restore it. */}}
{{- define "kai.postHook" -}}
helm.sh/hook: post-install,post-upgrade,post-rollback
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: hook-succeeded,before-hook-creation
{{- end -}}
{{- define "kai.deleteHook" -}}
helm.sh/hook: post-delete
helm.sh/hook-delete-policy: hook-succeeded
argocd.argoproj.io/hook: PostDelete
argocd.argoproj.io/hook-delete-policy: BeforeHookCreation,HookSucceeded
{{- end -}}
{{- define "kai.openshiftHook" -}}
helm.sh/hook: pre-install,pre-upgrade
helm.sh/hook-weight: "-1"
helm.sh/hook-delete-policy: before-hook-creation
{{- end -}}

{{/* Where pods of operator and hooks run, and with which secrets their images are pulled. Takes (dict "root" $), optionally with
     "affinity" in place of the global one. */}}
{{- define "kai.placement" -}}
{{- $global := .root.Values.global -}}
{{- with $global.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $global.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity | default $global.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $global.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The account and role of a hook. Takes (dict "root" $ "account" NAME "role" NAME "hook" ANNOTATIONS "rules" RULES),
     optionally with "labels" of the account and "namespacedRules", which hold in the namespace of the release only. */}}
{{- define "kai.hookAccount" -}}
{{- $annotations := fromYaml .hook -}}
{{- $namespace := .root.Release.Namespace -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "kai.metadata" (dict "root" .root "name" .account "namespace" $namespace "labels" (.labels | default dict) "annotations" $annotations) | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  {{- include "kai.metadata" (dict "root" .root "name" .role "annotations" $annotations) | nindent 2 }}
rules:
  {{- .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  {{- include "kai.metadata" (dict "root" .root "name" .role "annotations" $annotations) | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ .role }}
subjects:
  - kind: ServiceAccount
    name: {{ .account | quote }}
    namespace: {{ $namespace | quote }}
{{- if .namespacedRules }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  {{- include "kai.metadata" (dict "root" .root "name" .role "namespace" $namespace "annotations" $annotations) | nindent 2 }}
rules:
  {{- .namespacedRules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  {{- include "kai.metadata" (dict "root" .root "name" .role "namespace" $namespace "annotations" $annotations) | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ .role }}
subjects:
  - kind: ServiceAccount
    name: {{ .account | quote }}
    namespace: {{ $namespace | quote }}
{{- end }}
{{- end -}}

{{/* A hook job, which runs a subcommand of our own program. Takes (dict "root" $ "name" NAME "account" NAME "container" NAME
     "hook" ANNOTATIONS "settings" VALUES "args" LIST "restart" POLICY), optionally with "labels" and "manifest", the name of a
     ConfigMap that is mounted at /manifest. */}}
{{- define "kai.hookJob" -}}
{{- $root := .root -}}
{{- $image := dict "root" .root "image" .settings.image -}}
apiVersion: batch/v1
kind: Job
metadata:
  {{- include "kai.metadata" (dict "root" .root "name" .name "namespace" .root.Release.Namespace "annotations" (fromYaml .hook)) | nindent 2 }}
spec:
  template:
    metadata:
      {{- $annotations := dict }}
      {{- if include "kai.openshift" .root }}
      {{- $annotations = dict "openshift.io/scc" "kai-system" }}
      {{- end }}
      {{- include "kai.podMetadata" (dict "root" .root "labels" (.labels | default (dict "app" .name)) "annotations" $annotations) | nindent 6 }}
    spec:
      serviceAccountName: {{ .account | quote }}
      restartPolicy: {{ .restart }}
      {{- include "kai.placement" (dict "root" .root "affinity" .settings.affinity) | nindent 6 }}
      {{- if include "kai.openshift" .root }}
      securityContext:
        runAsUser: 10000
        runAsNonRoot: true
        fsGroup: 10000
      {{- else }}
      {{- with .root.Values.global.podSecurityContext }}
      securityContext:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- end }}
      containers:
        - name: {{ .container }}
          image: {{ include "kai.image" $image | quote }}
          imagePullPolicy: {{ include "kai.pullPolicy" $image }}
          args:
            {{- toYaml .args | nindent 12 }}
          {{- if include "kai.openshift" .root }}
          securityContext:
            runAsUser: 10000
            runAsNonRoot: true
            allowPrivilegeEscalation: false
            capabilities:
              drop: [ALL]
          {{- else }}
          securityContext:
            {{- include "kai.securityContext" .root | nindent 12 }}
          {{- end }}
          {{- with .settings.resources }}
          resources:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- if .manifest }}
          volumeMounts:
            - name: manifest
              mountPath: /manifest
          {{- end }}
      {{- with .manifest }}
      volumes:
        - name: manifest
          configMap:
            name: {{ . | quote }}
      {{- end }}
{{- end -}}

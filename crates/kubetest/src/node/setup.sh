# Makes the namespaces of a test node look like a machine of its own, and becomes its process 1.
# Arguments: the folder of the node, and the program that becomes process 1.
# The kubelet changes settings of the kernel that are shared by the whole machine; it finds plain files in their place.
set -eu
folder=$1
init=$2

mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /sys/fs/cgroup
while IFS=: read -r id controllers path; do
  case "$controllers" in
    "") ;; # the unified hierarchy beside version 1
    name=*) mkdir "/sys/fs/cgroup/${controllers#name=}" && mount -t cgroup -o "none,$controllers" cgroup "/sys/fs/cgroup/${controllers#name=}" ;;
    *) mkdir "/sys/fs/cgroup/$controllers" && mount -t cgroup -o "$controllers" cgroup "/sys/fs/cgroup/$controllers" ;;
  esac
done < /proc/self/cgroup

for private in /var/lib /var/log /run; do
  mkdir -p "$folder$private"
  mount --bind "$folder$private" "$private"
done
mount --make-rshared /

setting() {
  echo "$2" > "$folder/$(basename "$1")"
  mount --bind "$folder/$(basename "$1")" "/proc/sys/$1"
}
echo 1 > /proc/sys/net/ipv4/ip_forward
setting vm/overcommit_memory 1
setting kernel/panic 10
setting kernel/panic_on_oops 1
setting vm/panic_on_oom 0
setting kernel/keys/root_maxkeys 1000000
setting kernel/keys/root_maxbytes 25000000

touch "$folder/ready"
exec "$init" init

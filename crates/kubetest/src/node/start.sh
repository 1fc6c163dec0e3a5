# Starts the namespaces of a test node in cgroups of their own.
# Arguments: the name of the node, its folder, and the program that becomes its process 1.
set -eu
. "$(dirname "$0")/cgroups.sh"
join "$1"
exec unshare --fork --kill-child --pid --mount --net --uts --ipc --cgroup --mount-proc \
  sh "$(dirname "$0")/setup.sh" "$2" "$3"

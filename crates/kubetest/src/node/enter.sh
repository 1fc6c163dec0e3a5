# Runs a program in the cgroups and namespaces of a test node.
# Arguments: the name of the node's cgroups, its process 1, and the program with its arguments.
set -eu
name=$1
target=$2
shift 2
. "$(dirname "$0")/cgroups.sh"
join "$name"
exec nsenter --target "$target" --mount --net --pid --uts --ipc --cgroup "$@"

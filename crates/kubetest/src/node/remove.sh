# Removes the cgroups of a test node, whose processes have ended.
# Argument: the name of the node.
. "$(dirname "$0")/cgroups.sh"
busy=0
for folder in $(folders "$1"); do
  [ -d "$folder" ] || continue
  find "$folder" -depth -type d -exec rmdir {} \; 2> /dev/null
  [ -d "$folder" ] && busy=1
done
exit $busy

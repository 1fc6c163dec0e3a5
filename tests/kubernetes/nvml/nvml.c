// A stand-in for the NVIDIA driver's management library: the devices of the container are those that the device plugin named.
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_FOUND = 6 };

static const char *devices(void) {
  const char *visible = getenv("NVIDIA_VISIBLE_DEVICES");
  return visible ? visible : "";
}

int nvmlInit_v2(void) { return SUCCESS; }
int nvmlInitWithFlags(unsigned int flags) { (void)flags; return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int result) { return result == SUCCESS ? "Success" : "Error"; }

int nvmlDeviceGetCount_v2(unsigned int *count) {
  *count = 0;
  const char *rest = devices();
  while (*rest) {
    *count += 1;
    const char *comma = strchr(rest, ',');
    rest = comma ? comma + 1 : "";
  }
  return SUCCESS;
}

// The handle of a device is where its UUID begins.
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, const char **device) {
  const char *rest = devices();
  for (; index > 0; index -= 1) {
    const char *comma = strchr(rest, ',');
    if (!comma) return NOT_FOUND;
    rest = comma + 1;
  }
  *device = rest;
  return *rest ? SUCCESS : NOT_FOUND;
}

int nvmlDeviceGetUUID(const char *device, char *uuid, unsigned int length) {
  size_t end = strcspn(device, ",");
  if (end >= length) return INVALID_ARGUMENT;
  memcpy(uuid, device, end);
  uuid[end] = 0;
  return SUCCESS;
}

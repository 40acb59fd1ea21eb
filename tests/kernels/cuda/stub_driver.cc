// libcuda.so.1 as far as the runtime asks before it gives up: its version, and that it has no device.
extern "C" {

int cuInit(unsigned) { return STUB_INIT; }
int cuDriverGetVersion(int* version) {
  *version = STUB_VERSION;
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = 0;
  return 0;
}
}

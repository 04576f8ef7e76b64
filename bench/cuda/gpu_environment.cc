#include "bench/cuda/gpu_environment.h"

#include <cuda_runtime_api.h>

#include "bench/environment.h"

namespace headrace::bench {

nlohmann::ordered_json gpu_environment() {
  nlohmann::ordered_json json = environment();
  int device = 0;
  cudaDeviceProp properties{};
  if (cudaGetDevice(&device) == cudaSuccess &&
      cudaGetDeviceProperties(&properties, device) == cudaSuccess) {
    json["machine"]["gpu"] = properties.name;
    json["machine"]["multiprocessors"] = properties.multiProcessorCount;
  }
  int version = 0;
  if (cudaDriverGetVersion(&version) == cudaSuccess) {
    json["versions"]["cuda_driver"] = version;
  }
  if (cudaRuntimeGetVersion(&version) == cudaSuccess) {
    json["versions"]["cuda_runtime"] = version;
  }
  return json;
}

}  // namespace headrace::bench

#include "support/data_memory.h"

#include <cstring>

namespace headrace::testing {
namespace {

class HostMemory final : public DataMemory {
 public:
  std::byte* allocate(std::size_t bytes) override {
    memory_.emplace_back(new std::byte[bytes + 1]);
    return memory_.back().get();
  }
  void write(void* to, const void* from, std::size_t bytes) override { copy(to, from, bytes); }
  void read(void* to, const void* from, std::size_t bytes) override { copy(to, from, bytes); }

 private:
  static void copy(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0) {
      std::memcpy(to, from, bytes);
    }
  }

  std::vector<std::unique_ptr<std::byte[]>> memory_;
};

}  // namespace

std::unique_ptr<DataMemory> host_memory() { return std::make_unique<HostMemory>(); }

}  // namespace headrace::testing

#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace headrace::testing {

/// Memory of the kind that a transport's parameters and gradients lie in. What it gives lives as
/// long as it does.
class DataMemory {
 public:
  virtual ~DataMemory() = default;

  virtual std::byte* allocate(std::size_t bytes) = 0;
  /// Between this process's own memory and memory of this kind; done when they return.
  virtual void write(void* to, const void* from, std::size_t bytes) = 0;
  virtual void read(void* to, const void* from, std::size_t bytes) = 0;

  /// Memory that holds these values.
  template <class T>
  T* copy_of(const std::vector<T>& values) {
    auto* memory = reinterpret_cast<T*>(allocate(values.size() * sizeof(T)));
    write(memory, values.data(), values.size() * sizeof(T));
    return memory;
  }
  template <class T>
  std::vector<T> values(const void* memory, std::size_t count) {
    std::vector<T> result(count);
    read(result.data(), memory, count * sizeof(T));
    return result;
  }
};

/// This process's own memory.
std::unique_ptr<DataMemory> host_memory();

}  // namespace headrace::testing

#include "runtime/arena.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

namespace headrace {
namespace {

#ifndef MADV_POPULATE_WRITE
constexpr int k_populate_write = 23;
#else
constexpr int k_populate_write = MADV_POPULATE_WRITE;
#endif

Result<std::byte*> map_pages(int fd, std::size_t bytes) {
  const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* pages = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (pages == MAP_FAILED) {
    return system_error(Scope::session, fmt::format("cannot map {} bytes of memory", bytes));
  }
  // Advice: a kernel without these only costs speed, or a child that keeps a mapping it does not
  // use.
  ::madvise(pages, bytes, MADV_DONTFORK);
  ::madvise(pages, bytes, MADV_HUGEPAGE);
  return static_cast<std::byte*>(pages);
}

// Bytes that can be had without swapping, or none where the kernel does not tell.
std::optional<std::size_t> available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::size_t kib = 0;
  while (file >> key >> kib && file.ignore(256, '\n')) {
    if (key == "MemAvailable:") {
      return kib * 1024;
    }
  }
  return std::nullopt;
}

Status reserve(const Fd& fd, const Arena& arena) {
  // Asked first: taking what is not there would have the kernel kill a process, perhaps another
  // one.
  if (const auto available = available_memory(); available && *available < arena.bytes()) {
    return session_error(
        fmt::format("{} bytes of shared memory are needed and {} are available; free memory, or "
                    "shard over more "
                    "hosts",
                    arena.bytes(), *available));
  }
  if (::madvise(arena.data(), arena.bytes(), k_populate_write) == 0) {
    return {};
  }
  if (errno == EINVAL && ::fallocate(fd.get(), 0, 0, static_cast<off_t>(arena.bytes())) == 0) {
    return {};
  }
  return system_error(
      Scope::session,
      fmt::format("cannot reserve {} bytes of shared memory; free memory, or shard over more hosts",
                  arena.bytes()));
}

}  // namespace

Arena::Arena(std::byte* data, std::size_t bytes)
    : data_(data), bytes_(bytes), owner_pid_(::getpid()) {}

Arena::Arena(Arena&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      owner_pid_(other.owner_pid_) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  if (this != &other) {
    unmap();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    owner_pid_ = other.owner_pid_;
  }
  return *this;
}

Arena::~Arena() { unmap(); }

void Arena::unmap() {
  if (data_ != nullptr && owner_pid_ == ::getpid()) {
    ::munmap(data_, bytes_);
  }
  data_ = nullptr;
}

Result<Arena> Arena::anonymous(std::size_t bytes) {
  HEADRACE_TRY_ASSIGN(std::byte * data, map_pages(-1, bytes));
  return Arena(data, bytes);
}

Result<Arena> Arena::map(const Fd& fd, std::size_t bytes) {
  struct stat status{};
  if (::fstat(fd.get(), &status) != 0) {
    return system_error(Scope::session, "cannot read the size of a peer's shared memory");
  }
  if (static_cast<std::size_t>(status.st_size) < bytes) {
    return session_error(fmt::format("a peer's shared memory holds {} bytes where {} were expected",
                                     status.st_size, bytes));
  }
  HEADRACE_TRY_ASSIGN(std::byte * data, map_pages(fd.get(), bytes));
  return Arena(data, bytes);
}

Result<SharedMemory> SharedMemory::create(const std::string& name, std::size_t bytes) {
  Fd fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) {
    return system_error(Scope::session, "cannot create shared memory (memfd_create)");
  }
  if (::fchmod(fd.get(), S_IRUSR | S_IWUSR) != 0 ||
      ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return system_error(Scope::session,
                        fmt::format("cannot set up {} bytes of shared memory", bytes));
  }
  HEADRACE_TRY_ASSIGN(Arena arena, Arena::map(fd, bytes));
  HEADRACE_TRY(reserve(fd, arena));
  return SharedMemory{.fd = std::move(fd), .arena = std::make_shared<Arena>(std::move(arena))};
}

}  // namespace headrace

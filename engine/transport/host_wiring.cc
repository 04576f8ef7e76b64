#include "transport/host_wiring.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <utility>

namespace headrace {
namespace {

constexpr std::size_t k_token_digits = 32;

struct Hello {
  std::int32_t rank;
  char secret[k_token_digits];
  std::uint64_t arena;  // address of the sender's shared_ptr, for a peer in the same process
  std::array<std::byte, DeviceHandle::k_opaque_bytes> device;
};

// The memory, and the device memory where it has a descriptor.
constexpr std::size_t k_most_descriptors = 2;

Result<std::string> random_token() {
  std::array<unsigned char, k_token_digits / 2> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return system_error(Scope::session, "cannot get random bytes");
  }
  std::string token;
  for (const unsigned char byte : bytes) {
    token += fmt::format("{:02x}", byte);
  }
  return token;
}

std::string name_of(const std::string& address) { return address.substr(0, k_token_digits); }
std::string secret_of(const std::string& address) { return address.substr(k_token_digits); }

std::pair<sockaddr_un, socklen_t> abstract_address(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string text = "headrace-" + name;
  std::memcpy(address.sun_path + 1, text.data(), text.size());
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size())};
}

Result<ucred> credentials(const Fd& socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return system_error(Scope::session, "cannot read who is at the other end of a wiring socket");
  }
  return peer;
}

Status wait_readable(const Fd& socket, Deadline deadline) {
  pollfd poll_fd{.fd = socket.get(), .events = POLLIN, .revents = 0};
  int ready = 0;
  do {
    ready = ::poll(&poll_fd, 1, static_cast<int>(deadline.left().count()));
  } while (ready < 0 && errno == EINTR);
  if (ready > 0) {
    return {};
  }
  errno = ready == 0 ? ETIMEDOUT : errno;
  return system_error(Scope::session, "a wiring socket stayed silent");
}

Status send_hello(const Fd& socket, const Hello& hello, std::span<const int> descriptors) {
  Hello copy = hello;
  iovec data{.iov_base = &copy, .iov_len = sizeof copy};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(k_most_descriptors * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
  std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  if (::sendmsg(socket.get(), &message, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof copy)) {
    return system_error(Scope::session, "cannot pass shared memory to a peer");
  }
  return {};
}

Result<std::pair<Hello, std::vector<Fd>>> receive_hello(const Fd& socket, Deadline deadline) {
  HEADRACE_TRY(wait_readable(socket, deadline));
  Hello hello{};
  iovec data{.iov_base = &hello, .iov_len = sizeof hello};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(k_most_descriptors * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t size = ::recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  std::vector<Fd> descriptors;
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
      descriptors.emplace_back(fd);
    }
  }
  if (size != static_cast<ssize_t>(sizeof hello) || descriptors.empty()) {
    return session_error("a peer ended, or sent something else than its memory, while wiring");
  }
  return std::pair{hello, std::move(descriptors)};
}

// Both sides have taken what the other sent once this returns.
Status acknowledge(const Fd& socket, Deadline deadline) {
  char byte = 1;
  if (::send(socket.get(), &byte, 1, MSG_NOSIGNAL) != 1) {
    return system_error(Scope::session, "a peer ended while wiring");
  }
  HEADRACE_TRY(wait_readable(socket, deadline));
  if (::recv(socket.get(), &byte, 1, 0) != 1) {
    return session_error("a peer ended while wiring");
  }
  return {};
}

// A pidfd tells a death even while the peer's forked workers live. Where there is none (another pid
// namespace), the socket's end must do.
Fd death_of(const ucred& peer, Fd socket) {
#ifdef SYS_pidfd_open
  if (peer.pid > 0) {
    Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
    if (pidfd.valid()) {
      return pidfd;
    }
  }
#endif
  return socket;
}

Result<HostLink> greet(Fd socket, int rank, int expected, std::span<const Advertisement> all,
                       const HostOffer& offer, Deadline deadline, int* came) {
  Hello mine{.rank = rank,
             .secret = {},
             .arena = reinterpret_cast<std::uint64_t>(&offer.memory->arena),
             .device = {}};
  std::vector<int> descriptors{offer.memory->fd.get()};
  if (offer.device != nullptr) {
    mine.device = offer.device->opaque;
    if (offer.device->fd.valid()) {
      descriptors.push_back(offer.device->fd.get());
    }
  }
  const std::string secret = secret_of(all[static_cast<std::size_t>(rank)].address);
  std::memcpy(mine.secret, secret.data(), k_token_digits);
  HEADRACE_TRY_ASSIGN(const ucred peer, credentials(socket));
  HEADRACE_TRY(send_hello(socket, mine, descriptors));
  HEADRACE_TRY_ASSIGN(auto received, receive_hello(socket, deadline));
  const Hello& hello = received.first;
  const bool known = hello.rank >= 0 && hello.rank < static_cast<int>(all.size());
  if (!known || (expected >= 0 && hello.rank != expected) ||
      secret_of(all[static_cast<std::size_t>(hello.rank)].address) !=
          std::string(hello.secret, k_token_digits)) {
    return session_error("a process that is no rank of this job came to a wiring socket");
  }
  *came = hello.rank;
  HostLink link;
  link.device.opaque = hello.device;
  link.memory = std::move(received.second[0]);
  if (received.second.size() > 1) {
    link.device.fd = std::move(received.second[1]);
  }
  if (peer.pid == ::getpid()) {
    // Valid until the sender has our acknowledgement.
    link.arena = *reinterpret_cast<const std::shared_ptr<Arena>*>(hello.arena);
    HEADRACE_TRY(acknowledge(socket, deadline));
    return link;
  }
  HEADRACE_TRY(acknowledge(socket, deadline));
  link.death = death_of(peer, std::move(socket));
  return link;
}

}  // namespace

Result<std::string> host_identity() {
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::string boot_id;
  struct stat network{};
  if (!std::getline(boot, boot_id) || ::stat("/proc/self/ns/net", &network) != 0) {
    return system_error(Scope::session, "cannot read this host's identity from /proc");
  }
  return fmt::format("{}/net:{}", boot_id, network.st_ino);
}

Result<HostListener> HostListener::open() {
  HEADRACE_TRY_ASSIGN(std::string name, random_token());
  HEADRACE_TRY_ASSIGN(std::string secret, random_token());
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const auto [address, size] = abstract_address(name);
  if (!socket.valid() ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0) {
    return system_error(Scope::session, "cannot open a Unix socket for wiring");
  }
  return HostListener(std::move(socket), name + secret);
}

Result<std::vector<HostLink>> HostListener::wire(int rank, std::span<const int> peers,
                                                 std::span<const Advertisement> all,
                                                 const HostOffer& offer, Milliseconds limit) {
  const Deadline deadline(limit);
  std::vector<HostLink> links(all.size());
  int missing = 0;
  for (const int peer : peers) {
    if (peer > rank) {
      ++missing;
      continue;
    }
    Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const auto [address, size] =
        abstract_address(name_of(all[static_cast<std::size_t>(peer)].address));
    if (!socket.valid() ||
        ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) {
      return system_error(Scope::session,
                          fmt::format("cannot reach rank {} for wiring; did it end?", peer));
    }
    int came = -1;
    auto link = greet(std::move(socket), rank, peer, all, offer, deadline, &came);
    if (!link) {
      return session_error(
          fmt::format("wiring with rank {} failed: {}", peer, link.error().message));
    }
    links[static_cast<std::size_t>(peer)] = std::move(link).value();
  }
  while (missing > 0) {
    if (auto status = wait_readable(socket_, deadline); !status) {
      return session_error(
          fmt::format("{} of the ranks above {} did not come for wiring within {:.1f} s", missing,
                      rank, static_cast<double>(limit.count()) / 1e3));
    }
    Fd socket(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket.valid()) {
      return system_error(Scope::session, "cannot accept a peer for wiring");
    }
    HEADRACE_TRY_ASSIGN(const ucred visitor, credentials(socket));
    if (visitor.uid != ::geteuid()) {
      continue;  // a stranger can see the name of the socket; it gets nothing and stops nothing
    }
    int came = -1;
    HEADRACE_TRY_ASSIGN(HostLink link,
                        greet(std::move(socket), rank, -1, all, offer, deadline, &came));
    links[static_cast<std::size_t>(came)] = std::move(link);
    --missing;
  }
  return links;
}

Result<std::vector<HostLink>> join_host(const TransportConfig& config, const Exchange& exchange,
                                        const Result<HostOffer>& offer) {
  HEADRACE_TRY_ASSIGN(std::string host, host_identity());
  Advertisement advertisement{.identity = config.identity,
                              .memory_bytes = config.memory_bytes,
                              .host = std::move(host),
                              .address = "",
                              .failure = ""};
  auto listener = offer ? HostListener::open() : Result<HostListener>(offer.error());
  if (listener) {
    advertisement.address = listener->address();
  } else {
    advertisement.failure = listener.error().message;
  }
  auto advertised = advertise(advertisement, exchange, config.bootstrap);
  if (!listener) {
    return std::move(listener).error();
  }
  HEADRACE_TRY_ASSIGN(const auto all, std::move(advertised));
  return listener->wire(config.identity.rank, config.within_reach(), all, *offer, config.bootstrap);
}

}  // namespace headrace

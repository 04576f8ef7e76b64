#include "runtime/liveness.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>

namespace headrace {
namespace {

struct Watched {
  LivenessPeer peer;
  std::uint64_t heartbeat = 0;
  Milliseconds silent{0};
  bool over = false;  ///< left, failed or dead: not looked at again
};

void show_failure(int rank, LivenessPage* page, const Error& error) {
  std::string reason = error.message;
  if (error.rank < 0) {
    reason = fmt::format("rank {} failed: {}", rank, reason);
  }
  const std::size_t length = std::min(reason.size(), LivenessPage::k_reason_bytes - 1);
  std::memcpy(page->reason, reason.data(), length);
  page->reason[length] = '\0';
  page->culprit.store(error.rank < 0 ? rank : error.rank, std::memory_order_relaxed);
  page->state.store(LivenessPage::failed, std::memory_order_release);
}

}  // namespace

struct Liveness::State {
  int rank;
  LivenessPage* page;
  std::vector<Watched> peers;
  LivenessConfig config;
  Fd stop;
  int owner_pid = ::getpid();

  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::optional<Error> failure;  ///< under mutex; set once, before `failed`
  std::thread thread;

  void run();
  void look(Milliseconds elapsed);
  void look_at(Watched& watched, Milliseconds elapsed);
  bool ended(const Watched& watched) const;
  void record(const Error& error);
  void record_failure_of(const LivenessPeer& peer);
  /// Shows the recorded failure on the own page, once.
  void tell();
  bool wait_for_death_or_stop();
};

void Liveness::State::record(const Error& error) {
  const std::lock_guard lock(mutex);
  if (!failure) {
    failure = error;
    failed.store(true, std::memory_order_release);
  }
}

void Liveness::State::tell() {
  const std::lock_guard lock(mutex);
  if (failure && page->state.load(std::memory_order_relaxed) == LivenessPage::running) {
    show_failure(rank, page, *failure);
  }
}

bool Liveness::State::ended(const Watched& watched) const {
  if (!watched.peer.death.valid()) {
    return false;
  }
  pollfd poll_fd{.fd = watched.peer.death.get(), .events = POLLIN, .revents = 0};
  return ::poll(&poll_fd, 1, 0) > 0;
}

// `peer` shows that its session has failed.
void Liveness::State::record_failure_of(const LivenessPeer& peer) {
  const std::size_t length = ::strnlen(peer.page->reason, LivenessPage::k_reason_bytes);
  const int culprit = peer.page->culprit.load(std::memory_order_relaxed);
  std::string reason(peer.page->reason, length);
  if (culprit != peer.rank) {
    reason += fmt::format(" (reported by rank {})", peer.rank);
  }
  record(peer_error(culprit, std::move(reason)));
}

void Liveness::State::look_at(Watched& watched, Milliseconds elapsed) {
  // Death is read before the state: a rank that left and then ended has left.
  const bool dead = ended(watched);
  const int peer = watched.peer.rank;
  LivenessPage& shown = *watched.peer.page;
  switch (shown.state.load(std::memory_order_acquire)) {
    case LivenessPage::left:
      watched.over = true;
      return;
    case LivenessPage::failed:
      record_failure_of(watched.peer);
      watched.over = true;
      return;
    default:
      break;
  }
  if (dead) {
    record(
        peer_error(peer, fmt::format("rank {} died: its process ended without leaving; see its own "
                                     "output, and the kernel log for a kill",
                                     peer)));
    watched.over = true;
    return;
  }
  const std::uint64_t heartbeat = shown.heartbeat.load(std::memory_order_relaxed);
  if (heartbeat != watched.heartbeat) {
    watched.heartbeat = heartbeat;
    watched.silent = Milliseconds(0);
    return;
  }
  watched.silent += elapsed;
  if (watched.silent >= config.silence) {
    record(peer_error(
        peer,
        fmt::format(
            "rank {} is silent: no heartbeat for {:.1f} s (limit silence_seconds = {:.1f}); its "
            "process is stopped, or its host hangs",
            peer, static_cast<double>(watched.silent.count()) / 1e3,
            static_cast<double>(config.silence.count()) / 1e3)));
    watched.over = true;
  }
}

void Liveness::State::look(Milliseconds elapsed) {
  for (Watched& watched : peers) {
    if (!watched.over) {
      look_at(watched, elapsed);
    }
  }
  if (failed.load(std::memory_order_acquire)) {
    tell();  // to ranks that do not see the culprit themselves
  }
}

bool Liveness::State::wait_for_death_or_stop() {
  std::vector<pollfd> fds{{.fd = stop.get(), .events = POLLIN, .revents = 0}};
  for (const Watched& watched : peers) {
    if (!watched.over && watched.peer.death.valid()) {
      fds.push_back({.fd = watched.peer.death.get(), .events = POLLIN, .revents = 0});
    }
  }
  ::poll(fds.data(), fds.size(), static_cast<int>(config.interval.count()));
  return fds[0].revents != 0;
}

void Liveness::State::run() {
  auto before = Clock::now();
  while (!wait_for_death_or_stop()) {
    page->heartbeat.fetch_add(1, std::memory_order_relaxed);
    const auto now = Clock::now();
    const auto elapsed = std::chrono::duration_cast<Milliseconds>(now - before);
    before = now;
    look(elapsed > config.own_pause ? config.interval : elapsed);
  }
}

Liveness::Liveness(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<Liveness>> Liveness::start(int rank, LivenessPage* page,
                                                  std::vector<LivenessPeer> peers,
                                                  LivenessConfig config) {
  auto state = std::make_unique<State>();
  state->rank = rank;
  state->page = page;
  state->config = config;
  state->stop = Fd(::eventfd(0, EFD_CLOEXEC));
  if (!state->stop.valid()) {
    return system_error(Scope::session, "cannot create the liveness thread's event descriptor");
  }
  for (LivenessPeer& peer : peers) {
    state->peers.push_back({.peer = std::move(peer)});
  }
  page->state.store(LivenessPage::running, std::memory_order_release);
  State* shared = state.get();
  state->thread = std::thread([shared] { shared->run(); });
  return std::unique_ptr<Liveness>(new Liveness(std::move(state)));
}

void Liveness::refuse(int rank, LivenessPage* page, const Error& error) {
  show_failure(rank, page, error);
}

Liveness::~Liveness() {
  if (state_->owner_pid != ::getpid()) {
    // A forked child has the object but not the thread.
    state_->thread.detach();
    (void)state_
        .release();  // NOLINT: its mutex may be held by the thread that the child does not have
    return;
  }
  const std::uint64_t one = 1;
  while (::write(state_->stop.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
  state_->thread.join();
}

Status Liveness::check() const {
  if (!state_->failed.load(std::memory_order_acquire)) {
    return {};
  }
  const std::lock_guard lock(state_->mutex);
  return *state_->failure;
}

Status Liveness::check_pages() const {
  for (const Watched& watched : state_->peers) {
    if (watched.peer.page->state.load(std::memory_order_acquire) == LivenessPage::failed) {
      state_->record_failure_of(watched.peer);
    }
  }
  return check();
}

bool Liveness::has_left(int peer) const {
  return std::any_of(state_->peers.begin(), state_->peers.end(), [peer](const Watched& watched) {
    return watched.peer.rank == peer &&
           watched.peer.page->state.load(std::memory_order_acquire) == LivenessPage::left;
  });
}

void Liveness::show_wait(int peer) {
  state_->page->awaited.store(peer + 1, std::memory_order_relaxed);
}

void Liveness::show_no_wait() { state_->page->awaited.store(0, std::memory_order_relaxed); }

int Liveness::last_awaited(int peer) const {
  int last = peer;
  for (std::size_t steps = 0; steps <= state_->peers.size(); ++steps) {
    const auto next =
        std::find_if(state_->peers.begin(), state_->peers.end(),
                     [last](const Watched& watched) { return watched.peer.rank == last; });
    const int awaited =
        next == state_->peers.end() ? 0 : next->peer.page->awaited.load(std::memory_order_relaxed);
    if (awaited == 0) {
      return last == state_->rank ? peer : last;
    }
    last = awaited - 1;
  }
  return peer;
}

void Liveness::fail(const Error& error) {
  state_->record(error);
  state_->tell();
}

void Liveness::leave() {
  if (state_->page->state.load(std::memory_order_relaxed) == LivenessPage::running) {
    state_->page->state.store(LivenessPage::left, std::memory_order_release);
  }
}

}  // namespace headrace

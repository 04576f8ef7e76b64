#pragma once

#include <memory>
#include <utility>

#include "transport/channel.h"

namespace headrace {

/// A channel to the same local rank of another node: put and signal into its memory, as over a
/// network card with which the memory is registered. Nothing of the peer can be read.
class RailChannel final : public Channel {
 public:
  explicit RailChannel(std::unique_ptr<Channel> channel) : channel_(std::move(channel)) {}

  int peer() const override { return channel_->peer(); }
  const std::byte* view(std::size_t) const override { return nullptr; }
  Status get(Stream&, std::span<const Piece>) override { return refuse("get"); }
  Status put(Stream& stream, std::span<const Piece> pieces) override {
    return channel_->put(stream, pieces);
  }
  Status accumulate(Stream&, const AccumulatorRegion&, std::span<const Addend>) override {
    return refuse("accumulate");
  }
  Status signal(Stream& stream, std::size_t remote_offset, std::uint64_t value) override {
    return channel_->signal(stream, remote_offset, value);
  }
  Status wait(Stream& stream, std::size_t local_offset, std::uint64_t at_least,
              std::string_view what) override {
    return channel_->wait(stream, local_offset, at_least, what);
  }
  Status flush(Stream& stream) override { return channel_->flush(stream); }

 private:
  Status refuse(std::string_view operation) const;

  std::unique_ptr<Channel> channel_;
};

/// Stands for a rank out of reach.
class NoChannel final : public Channel {
 public:
  NoChannel(int rank, int peer) : rank_(rank), peer_(peer) {}

  int peer() const override { return peer_; }
  const std::byte* view(std::size_t) const override { return nullptr; }
  Status get(Stream&, std::span<const Piece>) override { return refuse(); }
  Status put(Stream&, std::span<const Piece>) override { return refuse(); }
  Status accumulate(Stream&, const AccumulatorRegion&, std::span<const Addend>) override {
    return refuse();
  }
  Status signal(Stream&, std::size_t, std::uint64_t) override { return refuse(); }
  Status wait(Stream&, std::size_t, std::uint64_t, std::string_view) override { return refuse(); }
  Status flush(Stream&) override { return refuse(); }

 private:
  Status refuse() const;

  int rank_;
  int peer_;
};

}  // namespace headrace

// Streams of the device and their events, as the host sees them.

#include "runtime/cuda/cuda_stream.h"

#include <gtest/gtest.h>

#include "runtime/cuda/cuda_error.h"
#include "support/cuda/cuda_group.h"
#include "support/cuda/held_stream.h"

namespace headrace::testing {
namespace {

constexpr Milliseconds k_limit{5'000};

class CudaStreamTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_no_device(); !reason.empty()) {
      GTEST_SKIP() << reason;
    }
  }
};

TEST_F(CudaStreamTest, an_event_that_has_not_happened_is_nobodys_error) {
  HeldStream held;
  const auto stream = CudaStream::borrow(held.handle(), {});
  auto event = stream->record();
  ASSERT_TRUE(event) << event.error().describe();
  EXPECT_FALSE(event->done());
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess) << "the caller's next check would take it for its";
  const Status late = event->wait(Deadline(Milliseconds(20)));
  ASSERT_FALSE(late);
  EXPECT_NE(late.error().message.find("in time"), std::string::npos);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  held.let_go();
  const Status passed = event->wait(Deadline(k_limit));
  EXPECT_TRUE(passed) << passed.error().describe();
  EXPECT_TRUE(event->done());
}

TEST_F(CudaStreamTest, a_failed_call_is_reported_once) {
  const Status status = cuda_status(::cudaSetDevice(1 << 20), "a device that is not there");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().scope, Scope::operation);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST_F(CudaStreamTest, a_stream_waits_for_another_on_the_device) {
  HeldStream held;
  const auto first = CudaStream::borrow(held.handle(), {});
  const auto second = CudaStream::make(StreamPriority::low, {}).value();
  ASSERT_TRUE(second->wait(first->record().value(), Deadline(k_limit)));
  auto event = second->record().value();
  EXPECT_FALSE(event.done());
  held.let_go();
  EXPECT_TRUE(event.wait(Deadline(k_limit)));
}

TEST_F(CudaStreamTest, what_has_not_passed_is_waited_for_until_the_deadline) {
  HeldStream held;
  const auto stream = CudaStream::make(StreamPriority::low, {}).value();
  const auto borrowed = CudaStream::borrow(held.handle(), {});
  const std::vector streams{stream->handle(), borrowed->handle()};
  EXPECT_FALSE(all_passed(streams, Deadline(Milliseconds(20))));
  held.let_go();
  EXPECT_TRUE(all_passed(streams, Deadline(k_limit)));
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST_F(CudaStreamTest, a_handle_outlives_its_stream_and_a_borrowed_one_is_left_alone) {
  HeldStream held;
  auto stream = CudaStream::make(StreamPriority::high, {}).value();
  const auto handle = stream->handle();
  stream.reset();
  EXPECT_EQ(cudaStreamQuery(handle.get()), cudaSuccess);
  CudaStream::borrow(held.handle(), {}).reset();
  held.let_go();
  EXPECT_EQ(cudaStreamSynchronize(held.handle()), cudaSuccess);
}

TEST_F(CudaStreamTest, what_went_wrong_meanwhile_is_told_when_the_work_has_run) {
  const auto stream = CudaStream::make(StreamPriority::low, [] {
                        return Status(peer_error(3, "rank 3 died"));
                      }).value();
  auto event = stream->record().value();
  const Status status = event.wait(Deadline(k_limit));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().rank, 3);
}

}  // namespace
}  // namespace headrace::testing

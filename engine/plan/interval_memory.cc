#include "plan/interval_memory.h"

#include <algorithm>

namespace headrace {

Value Value::advanced(std::size_t bytes) const {
  Value value = *this;
  if (kind == Kind::data) {
    value.element += bytes / item_bytes;
  }
  return value;
}

void append(std::vector<Extent>& extents, const Extent& extent) {
  if (!extents.empty() && extents.back().value.advanced(extents.back().bytes) == extent.value) {
    extents.back().bytes += extent.bytes;
  } else {
    extents.push_back(extent);
  }
}

void IntervalMemory::reset(std::size_t bytes) {
  bytes_ = bytes;
  segments_.clear();
  if (bytes > 0) {
    segments_.push_back({.begin = 0, .end = bytes});
  }
}

std::size_t IntervalMemory::split(std::size_t at) {
  const auto found = std::upper_bound(
      segments_.begin(), segments_.end(), at,
      [](std::size_t place, const Segment& segment) { return place < segment.end; });
  const auto index = static_cast<std::size_t>(found - segments_.begin());
  if (found == segments_.end() || found->begin == at) {
    return index;
  }
  Segment upper = *found;
  upper.begin = at;
  upper.value = upper.value.advanced(at - found->begin);
  found->end = at;
  segments_.insert(found + 1, std::move(upper));
  return index + 1;
}

std::span<Segment> IntervalMemory::range(std::size_t begin, std::size_t end) {
  if (begin == end) {
    return {};
  }
  const std::size_t first = split(begin);
  const std::size_t last = split(end);
  return {segments_.data() + first, last - first};
}

void IntervalMemory::write(std::size_t begin, std::span<const Extent> extents, Epoch writer) {
  std::size_t end = begin;
  for (const Extent& extent : extents) {
    end += extent.bytes;
  }
  if (begin == end) {
    return;
  }
  auto first = static_cast<std::ptrdiff_t>(split(begin));
  const auto last = static_cast<std::ptrdiff_t>(split(end));
  const auto wanted = static_cast<std::ptrdiff_t>(extents.size());
  if (wanted < last - first) {
    segments_.erase(segments_.begin() + first + wanted, segments_.begin() + last);
  } else if (wanted > last - first) {
    segments_.insert(segments_.begin() + last, static_cast<std::size_t>(wanted - (last - first)),
                     Segment{});
  }
  for (const Extent& extent : extents) {
    Segment& segment = segments_[static_cast<std::size_t>(first++)];
    segment.begin = begin;
    segment.end = begin + extent.bytes;
    segment.value = extent.value;
    segment.writer = writer;
    segment.readers.clear();
    begin = segment.end;
  }
}

}  // namespace headrace

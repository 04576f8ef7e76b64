#pragma once

#include <cstdint>

namespace headrace::testing {

/// What share of the machine's processors others used meanwhile: neither this process nor children
/// that it has waited for. What a hypervisor took counts as used.
class ProcessorTime {
 public:
  ProcessorTime() : begin_(now()) {}
  double share_of_others() const;

 private:
  /// In seconds, of all processors together.
  struct Used {
    double all = 0;  ///< idle or not
    double busy = 0;
    double own = 0;
  };
  static Used now();

  Used begin_;
};

}  // namespace headrace::testing

#include "runtime/freed_pages.h"

#if defined(__GLIBC__) || __has_include(<gnu/libc-version.h>)
#include <malloc.h>

#include <climits>

namespace headrace {

bool keep_freed_pages() {
  // Large blocks come from the heap instead of mappings of their own, and the heap's top is never
  // given back.
  return mallopt(M_MMAP_MAX, 0) == 1 && mallopt(M_TRIM_THRESHOLD, INT_MAX) == 1;
}

}  // namespace headrace
#else
namespace headrace {

bool keep_freed_pages() { return false; }

}  // namespace headrace
#endif

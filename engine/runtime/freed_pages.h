#pragma once

namespace headrace {

/// Tells the C library's allocator to keep freed memory resident instead of giving it back to the
/// kernel, so that buffers that are freed and allocated again at every use are not faulted in
/// again. For the whole process, for good. False where the C library has no such setting.
bool keep_freed_pages();

}  // namespace headrace

#pragma once

namespace headrace::testing {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool k_address_sanitized = true;
#else
inline constexpr bool k_address_sanitized = false;
#endif
#if defined(__SANITIZE_THREAD__)
inline constexpr bool k_thread_sanitized = true;
#else
inline constexpr bool k_thread_sanitized = false;
#endif
/// Whether this build runs under a sanitizer: slowly, and with memory of its own.
inline constexpr bool k_sanitized = k_address_sanitized || k_thread_sanitized;

}  // namespace headrace::testing

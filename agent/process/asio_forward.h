// SPDX-License-Identifier: Apache-2.0
#pragma once

// Headers that only name the event loop include this, and not Asio, which takes a second.

namespace boost::asio {
class io_context;  // NOLINT(readability-identifier-naming): Boost's name.
}

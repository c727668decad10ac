// SPDX-License-Identifier: Apache-2.0
// The one translation unit that holds Asio's own functions; all others only declare them.
#include <boost/asio/impl/src.hpp>

// SPDX-License-Identifier: Apache-2.0
// The one translation unit that holds the functions of Asio's TLS.
#include <boost/asio/ssl/impl/src.hpp>

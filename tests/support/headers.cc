// SPDX-License-Identifier: Apache-2.0
// The only source of the library with the precompiled headers.
#include <gtest/gtest.h>

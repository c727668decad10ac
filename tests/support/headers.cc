// SPDX-License-Identifier: Apache-2.0
// Nothing but a source for the library that holds the precompiled headers.
#include <gtest/gtest.h>

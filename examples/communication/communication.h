// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The command `parameter_server`. Like main().
int parameter_server(int argc, char** argv);

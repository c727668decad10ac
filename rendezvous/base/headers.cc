// SPDX-License-Identifier: Apache-2.0
// Empty: regroup_headers needs a source to precompile its headers for.

# SPDX-License-Identifier: Apache-2.0
regroup_library(progress_watch
    SOURCES watch/progress_watch.cc
    PUBLIC regroup::rendezvous_core)

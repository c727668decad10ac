# SPDX-License-Identifier: Apache-2.0
# The store without Asio: what the worker SDK needs of it.
regroup_library(store_core
    SOURCES store/client_socket.cc store/descriptor.cc store/request_channel.cc store/resolve.cc
            store/store_client.cc store/store_core.cc store/store_dispatch.cc store/store_wire.cc
    PUBLIC regroup::base Threads::Threads)

# SPDX-License-Identifier: Apache-2.0
regroup_library(store_server
    SOURCES store/store_server.cc store/store_server_clients.cc
            store/store_server_socket.cc
    PUBLIC regroup::store_core regroup::asio)

# SPDX-License-Identifier: Apache-2.0
regroup_library(asio_impl SOURCES net/asio_impl.cc PUBLIC regroup_asio)
add_library(regroup::asio ALIAS regroup_asio_impl)

regroup_library(net
    SOURCES net/listen.cc net/port_holder.cc net/route.cc
    PUBLIC regroup::base regroup::asio)

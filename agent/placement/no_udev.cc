// SPDX-License-Identifier: Apache-2.0
// Stubs for libudev, which has no static library. The static libhwloc uses it only for the names of
// disks, which are not needed here, and works if udev_new() fails.

struct udev;
struct udev_device;

extern "C" {

udev* udev_new();
udev* udev_unref(udev* context);
udev_device* udev_device_new_from_subsystem_sysname(udev* context, const char* subsystem,
                                                    const char* name);
const char* udev_device_get_property_value(udev_device* device, const char* key);
udev_device* udev_device_unref(udev_device* device);

udev* udev_new() {
    return nullptr;
}

udev* udev_unref(udev* /*context*/) {
    return nullptr;
}

udev_device* udev_device_new_from_subsystem_sysname(udev* /*context*/, const char* /*subsystem*/,
                                                    const char* /*name*/) {
    return nullptr;
}

const char* udev_device_get_property_value(udev_device* /*device*/, const char* /*key*/) {
    return nullptr;
}

udev_device* udev_device_unref(udev_device* /*device*/) {
    return nullptr;
}
}

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>

namespace regroup::testing {

/// A folder that is removed with the object.
class TemporaryDirectory {
   public:
    TemporaryDirectory() {
        if (::mkdtemp(path_.data()) == nullptr) {
            throw std::runtime_error("cannot make " + path_);
        }
    }
    ~TemporaryDirectory() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TemporaryDirectory(const TemporaryDirectory&) = delete;
    TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] std::filesystem::path operator/(const std::string& file) const {
        return std::filesystem::path(path_) / file;
    }
    /// Writes a file, and makes the folders above it.
    void write(const std::string& file, const std::string& text) const {
        std::filesystem::create_directories((*this / file).parent_path());
        std::ofstream(*this / file) << text;
    }

   private:
    std::string path_ = (std::filesystem::temp_directory_path() / "regroup-XXXXXX").string();
};

}  // namespace regroup::testing

// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <fstream>
#include <sys/stat.h>

#include "rendezvous/security/secret_file.h"
#include "tests/support/failures.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_directory.h"

namespace regroup::security {
namespace {

class SecretFile : public ::testing::Test {
   protected:
    /// The line that is read from a file of that content.
    [[nodiscard]] Result<std::string> read(const std::string& content, mode_t mode = 0600) const {
        const std::string path = folder_ + "/file";
        std::ofstream(path, std::ios::trunc) << content;
        ::chmod(path.c_str(), mode);
        return read_secret_line(path, "the password file", 8);
    }

    testing::TemporaryDirectory temporary_;
    std::string folder_ = temporary_.path();
};

TEST_F(SecretFile, FirstLineIsTheSecretWithItsBlanks) {
    EXPECT_EQ(*read("secret"), "secret");
    EXPECT_EQ(*read("secret\n"), "secret");
    EXPECT_EQ(*read("secret\r\nmore\n"), "secret");
    EXPECT_EQ(*read(" a b \n"), " a b ");
    EXPECT_EQ(*read("12345678\n"), "12345678");
}

TEST_F(SecretFile, LineThatIsEmptyOrTooLongIsRefusedWithoutItsContent) {
    for (const char* content : {"", "\n", "\r\nlater", "123456789", "123456789\n"}) {
        const Result<std::string> line = read(content);
        ASSERT_FALSE(line) << content;
        EXPECT_THAT(line.error().detail, HasSubstr("the password file " + folder_));
        EXPECT_EQ(line.error().detail.find("12345"), std::string::npos);
    }
}

TEST_F(SecretFile, FileThatOthersMayReadIsRefusedWithTheRemedy) {
    EXPECT_THAT(read("secret", 0644),
                fails(Errc::invalid_argument, "chmod 600 " + folder_ + "/file"));
}

}  // namespace
}  // namespace regroup::security

// SPDX-License-Identifier: Apache-2.0
//
// cluster_check: checks the processors and the links of a job's nodes before the training starts.
//
//     regroup run --nnodes=8 --nproc-per-node=gpu ... cluster_check --backend nccl
//
// Each rank multiplies two matrices again and again, and compares every bit of the product. Then
// each rank sends a block to the next one, all at the same time as in a ring all_reduce, and checks
// what has arrived. Rank 0 prints a line for each link that is much slower than the others of its
// kind. A rank with a wrong product, or at the end of a bad link, ends with exit code 76.

#include <regroup/context.h>
#include <regroup/cuda.h>
#include <regroup/process_group.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "device_vector.h"
#include "flags.h"
#include "gpu_product.h"

namespace {

using regroup::ProcessGroup;
using Words = example::DeviceVector<std::int64_t>;

constexpr std::size_t kSize = 512;  // Of the matrices.
constexpr int kExitUnhealthy = 76;  // As a node that fails the checks of --health.

struct Options {
    std::string backend = "cpu";
    std::int64_t megabytes = 64;
    std::int64_t rounds = 20;
    double slow = 0.5;
    std::int64_t pretend_fault = -1;
};

/// The findings of a rank. All ranks exchange them, as numbers of 64 bits.
struct Finding {
    std::int64_t node = 0;
    std::int64_t wrong_elements = 0;    // Of the product.
    std::int64_t wrong_words = 0;       // Of the block that the previous rank has sent.
    std::int64_t bytes_per_second = 0;  // Of the link from the previous rank.
};
constexpr std::size_t kFindingWords = sizeof(Finding) / sizeof(std::int64_t);

/// Small integers: all sums of the product are exact, in any order and on any processor.
std::vector<float> matrix(std::uint32_t seed) {
    std::vector<float> values(kSize * kSize);
    for (float& value : values) {
        seed = seed * 1664525U + 1013904223U;
        value = static_cast<float>(seed >> 24U) - 128.0F;
    }
    return values;
}

std::vector<float> product(const std::vector<float>& a, const std::vector<float>& b) {
    std::vector<float> result(kSize * kSize);
    for (std::size_t row = 0; row < kSize; ++row) {
        for (std::size_t i = 0; i < kSize; ++i) {
            const float factor = a[row * kSize + i];
            for (std::size_t column = 0; column < kSize; ++column) {
                result[row * kSize + column] += factor * b[i * kSize + column];
            }
        }
    }
    return result;
}

/// The elements that differed. On the CPU the product of a matrix and its transpose is symmetric,
/// which a wrong core breaks.
std::int64_t check_product(const ProcessGroup& group, const Options& options) {
    const std::vector<float> a = matrix(1);
    std::vector<float> b(a.size());
    for (std::size_t row = 0; row < kSize; ++row) {
        for (std::size_t column = 0; column < kSize; ++column) {
            b[column * kSize + row] = a[row * kSize + column];
        }
    }
    const std::vector<float> first = product(a, b);
    std::int64_t wrong = 0;
    for (std::size_t row = 0; row < kSize; ++row) {
        for (std::size_t column = 0; column < row; ++column) {
            wrong += first[row * kSize + column] != first[column * kSize + row] ? 1 : 0;
        }
    }
    const int rounds = static_cast<int>(options.rounds);
    if (group.device().kind != regroup::DeviceKind::cpu) {
        return wrong + static_cast<std::int64_t>(cluster_check::wrong_elements_on_gpu(
                           group.device().index, a.data(), b.data(), first.data(), kSize, rounds));
    }
    for (int round = 1; round < rounds && round < 3; ++round) {
        const std::vector<float> again = product(a, b);
        for (std::size_t i = 0; i < again.size(); ++i) {
            wrong += again[i] != first[i] ? 1 : 0;
        }
    }
    return wrong;
}

/// The words that rank `from` sends.
std::vector<std::int64_t> block(std::uint32_t from, std::size_t count) {
    std::vector<std::int64_t> words(count);
    std::uint64_t state = from + 1;
    for (std::int64_t& word : words) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        word = static_cast<std::int64_t>(state);
    }
    return words;
}

/// Sends to the next rank and receives from the previous one; fills in what has arrived and how
/// fast.
void check_link(ProcessGroup& group, const Options& options, Finding& finding) {
    const std::uint32_t size = group.world_size();
    if (size == 1) {
        return;
    }
    const std::uint32_t next = (group.rank() + 1) % size;
    const std::uint32_t previous = (group.rank() + size - 1) % size;
    const std::size_t count =
        static_cast<std::size_t>(options.megabytes) * 1000 * 1000 / sizeof(std::int64_t);
    std::vector<std::int64_t> words = block(group.rank(), count);
    if (options.pretend_fault == std::int64_t{group.rank()}) {
        words[count / 2] ^= 1;
    }
    Words sending(std::move(words), group.device());
    Words arriving(count, group.device());
    std::chrono::duration<double> fastest{0};
    for (int round = 0; round < 3; ++round) {  // The first one opens the connections.
        group.barrier().wait();
        const auto begin = std::chrono::steady_clock::now();
        regroup::OperationBatch batch(group);
        const regroup::Work sent = group.send(sending.view(), next);
        const regroup::Work received = group.recv(arriving.view(), previous);
        batch.start();
        received.wait();
        const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
        sent.wait();
        fastest = round == 0 ? taken : std::min(fastest, taken);
    }
    arriving.download();
    const std::vector<std::int64_t> expected = block(previous, count);
    for (std::size_t i = 0; i < count; ++i) {
        finding.wrong_words += arriving.host()[i] != expected[i] ? 1 : 0;
    }
    const double bytes = static_cast<double>(count * sizeof(std::int64_t));
    finding.bytes_per_second = static_cast<std::int64_t>(bytes / std::max(fastest.count(), 1e-9));
}

std::vector<Finding> exchange(ProcessGroup& group, const Finding& own) {
    Words mine(kFindingWords, group.device());
    std::memcpy(mine.host().data(), &own, sizeof own);
    mine.upload();
    Words all(kFindingWords * group.world_size(), group.device());
    group.all_gather(mine.view(), all.view()).wait();
    all.download();
    std::vector<Finding> findings(group.world_size());
    std::memcpy(findings.data(), all.host().data(), all.size() * sizeof(std::int64_t));
    return findings;
}

/// The link from `rank`'s predecessor to `rank`.
struct Link {
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    bool between_nodes = false;
    double bytes_per_second = 0;
};

std::vector<Link> links_of(const std::vector<Finding>& findings) {
    std::vector<Link> links;
    const auto size = static_cast<std::uint32_t>(findings.size());
    for (std::uint32_t to = 0; to < size; ++to) {
        const std::uint32_t from = (to + size - 1) % size;
        links.push_back({from, to, findings[from].node != findings[to].node,
                         static_cast<double>(findings[to].bytes_per_second)});
    }
    return links;
}

/// The median speed of the links of this kind, or 0 if there is none.
double median(const std::vector<Link>& links, bool between_nodes) {
    std::vector<double> speeds;
    for (const Link& link : links) {
        if (link.between_nodes == between_nodes) {
            speeds.push_back(link.bytes_per_second);
        }
    }
    if (speeds.empty()) {
        return 0;
    }
    const auto middle = speeds.begin() + static_cast<std::ptrdiff_t>(speeds.size() / 2);
    std::nth_element(speeds.begin(), middle, speeds.end());
    return *middle;
}

/// Prints on rank 0 what is wrong. Returns whether this rank is at one of the places.
bool report(const ProcessGroup& group, const std::vector<Finding>& findings,
            const Options& options) {
    bool concerned = false;
    const auto tell = [&](const std::string& line, std::uint32_t from, std::uint32_t to) {
        concerned = concerned || group.rank() == from || group.rank() == to;
        if (group.rank() == 0) {
            std::printf("%s\n", line.c_str());
        }
    };
    const auto name = [&](std::uint32_t rank) {
        return "rank " + std::to_string(rank) + " (node " + std::to_string(findings[rank].node) +
               ")";
    };
    const auto gigabytes = [](double bytes) {
        char text[32];
        std::snprintf(text, sizeof text, "%.2f GB/s", bytes / 1e9);
        return std::string(text);
    };
    for (std::uint32_t rank = 0; rank < findings.size(); ++rank) {
        if (findings[rank].wrong_elements != 0) {
            tell(name(rank) + " computes wrongly: " +
                     std::to_string(findings[rank].wrong_elements) + " elements of the product",
                 rank, rank);
        }
    }
    const std::vector<Link> links = links_of(findings);
    for (const Link& link : links) {
        const std::string between = "from " + name(link.from) + " to " + name(link.to);
        if (findings[link.to].wrong_words != 0) {
            tell("data changes on the way " + between + ": " +
                     std::to_string(findings[link.to].wrong_words) + " words of 8 bytes",
                 link.from, link.to);
        }
        const double usual = median(links, link.between_nodes);
        if (link.bytes_per_second < options.slow * usual) {
            tell("the link " + between + " is slow: " + gigabytes(link.bytes_per_second) +
                     ", the median is " + gigabytes(usual),
                 link.from, link.to);
        }
    }
    if (group.rank() == 0) {
        std::string speeds;
        for (const bool between_nodes : {false, true}) {
            if (const double usual = median(links, between_nodes); usual > 0) {
                speeds += (speeds.empty() ? "; the median link: " : ", ") + gigabytes(usual) +
                          (between_nodes ? " between nodes" : " within a node");
            }
        }
        std::printf("%zu ranks checked%s\n", findings.size(), speeds.c_str());
    }
    return concerned;
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    example::Flags flags("cluster_check", "checks the processors and the links of a job's nodes.");
    flags.add_backend(options.backend);
    flags.add("--megabytes", options.megabytes, {1, 4096},
              "size of the block that each rank sends");
    flags.add("--rounds", options.rounds, {1, 1000000}, "products on a GPU");
    flags.add("--slow", options.slow, "a link is slow below this share of the median");
    flags.add("--pretend-fault", options.pretend_fault, {-1, 1000000},
              "let this rank compute and send wrongly, to see the report");
    bool concerned = false;
    const int code = example::run_main(flags, argc, argv, [&](const regroup::Context& context) {
        const auto group = ProcessGroup::create(options.backend, context);
        Finding own;
        own.node = std::int64_t{context.group_rank};
        own.wrong_elements = check_product(*group, options);
        if (options.pretend_fault == std::int64_t{context.rank}) {
            ++own.wrong_elements;
        }
        check_link(*group, options, own);
        concerned = report(*group, exchange(*group, own), options);
        group->barrier().wait();
    });
    return code == 0 && concerned ? kExitUnhealthy : code;
}

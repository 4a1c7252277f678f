// The page that `bench --html` writes: one file, nothing fetched from anywhere.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/bench.h"

namespace changeover::cli {

// "4.31 GB/s", "0.84 us", "16.4 kB".
std::string bench_value_text(double value, std::string_view unit);

std::string bench_page(const bench::Machine& machine, const std::vector<bench::Figure>& figures,
                       const bench::Sweeps& sweeps);

}  // namespace changeover::cli

#include "cli/report_text.h"

#include <algorithm>

#include <fmt/core.h>

#include "cli/terminal.h"

namespace changeover::cli {
namespace {

std::string outcome_text(const RankReport& rank) {
  const bool good =
      rank.outcome == RankOutcome::kCommitted || rank.outcome == RankOutcome::kAlreadyThere;
  const bool as_before =
      rank.outcome == RankOutcome::kRestored || rank.outcome == RankOutcome::kRefused;
  const Colour colour = good ? Colour::kGreen : as_before ? Colour::kYellow : Colour::kRed;
  return coloured(rank_outcome_name(rank.outcome), colour, stdout);
}

}  // namespace

std::string version_text(const std::optional<VersionStamp>& version) {
  if (!version) {
    return "-";
  }
  return version->epoch == 0 ? std::to_string(version->version)
                             : fmt::format("{} of epoch {}", version->version, version->epoch);
}

std::string report_text(const UpdateReport& report) {
  std::string text;
  if (!report.ranks.empty()) {
    Table table({"rank", "mode", "before", "now", "pieces", "received", "beside", "receive",
                 "finish", "pause", "outcome"},
                {2, 3, 4, 5, 6, 7, 8, 9});
    for (const RankReport& rank : report.ranks) {
      table.add({printable(rank.rank.to_text()), std::string(mode_name(rank.mode)),
                 version_text(rank.version_before), version_text(rank.version),
                 fmt::format("{}/{}", rank.pieces_landed, rank.pieces_expected),
                 human_bytes(rank.bytes_received), human_bytes(rank.mode_memory_bytes),
                 human_seconds(rank.seconds.receive), human_seconds(rank.seconds.finish),
                 human_seconds(rank.seconds.pause), outcome_text(rank)});
    }
    text += table.to_string();
    for (const RankReport& rank : report.ranks) {
      if (!rank.error.ok()) {
        text += fmt::format("{}: {}\n", printable(rank.rank.to_text()),
                            printable(rank.error.message()));
      }
    }
  }
  const double rate =
      report.seconds > 0 ? static_cast<double>(report.payload_bytes) / report.seconds : 0;
  text += fmt::format("version {}: ", version_text(report.version));
  text +=
      report.buckets == 0
          ? "nothing was sent"
          : fmt::format("{} in {} bucket{}, {} ({}/s)", human_bytes(report.payload_bytes),
                        report.buckets, report.buckets == 1 ? "" : "s",
                        human_seconds(report.seconds), human_bytes(static_cast<uint64_t>(rate)));
  if (!report.digests_on) {
    text += ", without digests";
  } else if (report.digest) {
    text += ", digest " + report.digest->to_text();
  }
  if (!report.ranks.empty()) {
    const auto done = std::count_if(report.ranks.begin(), report.ranks.end(), [](const auto& r) {
      return r.outcome == RankOutcome::kCommitted || r.outcome == RankOutcome::kAlreadyThere;
    });
    text += fmt::format("; {} of {} ranks hold it", done, report.ranks.size());
  }
  return text + "\n";
}

}  // namespace changeover::cli

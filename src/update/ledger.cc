#include "update/ledger.h"

#include <algorithm>
#include <numeric>

#include "base/utf8.h"

namespace changeover::update {

namespace {

// Messages name this many missing pieces, then say how many more there are.
constexpr size_t kNamedMax = 8;

}  // namespace

Ledger::Ledger(const LoadPlan& plan, const model::NameResolver& names,
               std::span<const uint64_t> piece_bytes)
    : piece_bytes_(piece_bytes.begin(), piece_bytes.end()),
      landed_(plan.pieces.size()),
      whole_(plan.pieces.size()),
      piece_order_(plan.pieces.size()),
      source_begins_(plan.sources.size() + 1),
      source_arrived_(plan.sources.size()),
      source_whole_(plan.sources.size()),
      source_digests_(plan.sources.size()),
      arrived_as_(names.name_count()) {
  for (const Piece& piece : plan.pieces) {
    labels_.push_back({plan.parameters[piece.parameter].name, piece.part, piece.source});
    ++source_begins_[piece.source + 1];
  }
  for (const Source& source : plan.sources) {
    source_names_.push_back(source.spec.name);
  }
  std::partial_sum(source_begins_.begin(), source_begins_.end(), source_begins_.begin());
  std::iota(piece_order_.begin(), piece_order_.end(), 0u);
  std::stable_sort(piece_order_.begin(), piece_order_.end(),
                   [&](uint32_t a, uint32_t b) { return labels_[a].source < labels_[b].source; });
}

void Ledger::clear() {
  std::fill(landed_.begin(), landed_.end(), 0);
  std::fill(whole_.begin(), whole_.end(), false);
  std::fill(source_arrived_.begin(), source_arrived_.end(), false);
  std::fill(source_whole_.begin(), source_whole_.end(), false);
  for (std::string& name : arrived_as_) {
    name.clear();  // keeps its memory: no allocation per tensor in the next update
  }
  pieces_landed_ = 0;
  bytes_landed_ = 0;
}

void Ledger::next_reload() {
  std::fill(source_arrived_.begin(), source_arrived_.end(), false);
  for (std::string& name : arrived_as_) {
    name.clear();
  }
}

Result<bool> Ledger::arrive(const model::NameMatch& match, std::string_view name) {
  std::string& before = arrived_as_[match.name_index];
  if (before == name) {
    return Status(Code::kInvalidArgument,
                  base::quoted(name) + " came twice in one update: each tensor is sent once");
  }
  if (!before.empty()) {
    return model::NameResolver::collision(before, name);
  }
  before = name;
  const bool first = !source_arrived_[match.source];
  source_arrived_[match.source] = true;
  if (first) {
    forget(match.source);
  }
  return first;
}

void Ledger::forget(uint32_t source) {
  source_whole_[source] = false;
  for (uint32_t piece : pieces_of(source)) {
    pieces_landed_ -= whole_[piece] ? 1 : 0;
    whole_[piece] = false;
    landed_[piece] = 0;
  }
}

void Ledger::land(uint32_t piece, uint64_t bytes) {
  landed_[piece] += bytes;
  bytes_landed_ += bytes;
}

Status Ledger::complete(uint32_t source, std::string_view name, const Digest& digest) {
  for (uint32_t piece : pieces_of(source)) {
    if (landed_[piece] != piece_bytes_[piece]) {
      return {Code::kCorrupt, base::quoted(name) + ": " + missing(piece)};
    }
    if (!whole_[piece]) {
      whole_[piece] = true;
      ++pieces_landed_;
    }
  }
  source_whole_[source] = true;
  source_digests_[source] = digest;
  return {};
}

Status Ledger::compare(uint32_t source, std::string_view name, const Digest& digest) const {
  if (source_whole_[source] && source_digests_[source] == digest) {
    return {};
  }
  return {Code::kInvalidArgument,
          base::quoted(name) + " and " + base::quoted(source_names_[source]) +
              " are one tied tensor here but came with different content (digests " +
              digest.to_text() + " and " + source_digests_[source].to_text() +
              "): send one of them, or both bitwise equal"};
}

Status Ledger::coverage() const {
  std::string text;
  size_t count = 0;
  for (uint32_t piece = 0; piece < whole_.size(); ++piece) {
    if (whole_[piece]) {
      continue;
    }
    if (count++ < kNamedMax) {
      text += (text.empty() ? "" : "; ") + missing(piece);
    }
  }
  if (count == 0) {
    return {};
  }
  if (count > kNamedMax) {
    text += "; and " + std::to_string(count - kNamedMax) + " more";
  }
  return {Code::kInvalidArgument, "not every parameter is covered (" +
                                      std::to_string(pieces_landed_) + " of " +
                                      std::to_string(whole_.size()) + " pieces landed): " + text};
}

std::string Ledger::not_come() const {
  std::string text;
  size_t count = 0;
  for (size_t source = 0; source < source_arrived_.size(); ++source) {
    if (!source_arrived_[source] && count++ < kNamedMax) {
      text += (text.empty() ? "" : ", ") + base::quoted(source_names_[source]);
    }
  }
  return count > kNamedMax ? text + " and " + std::to_string(count - kNamedMax) + " more" : text;
}

std::string Ledger::missing(uint32_t piece) const {
  const Label& label = labels_[piece];
  std::string text = label.parameter + ":";
  if (!label.part.empty()) {
    text += " part " + label.part;
  }
  text += " missing";
  if (landed_[piece] != 0) {
    text += " in part (" + std::to_string(landed_[piece]) + " of " +
            std::to_string(piece_bytes_[piece]) + " bytes landed)";
  }
  return text + ", comes from " + base::quoted(source_names_[label.source]);
}

std::span<const uint32_t> Ledger::pieces_of(uint32_t source) const {
  const uint32_t begin = source_begins_[source];
  return {piece_order_.data() + begin, source_begins_[source + 1] - begin};
}

}  // namespace changeover::update

// What has landed in this update, counted by piece (rules T3-T6): a parameter counts once each of
// its pieces is whole, and each piece lands exactly once.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <changeover/load_plan.h>
#include <changeover/status.h>
#include <changeover/types.h>

#include "model/names.h"

namespace changeover::update {

class Ledger {
 public:
  // `piece_bytes`: bytes that each piece of the plan puts into its parameter.
  Ledger(const LoadPlan& plan, const model::NameResolver& names,
         std::span<const uint64_t> piece_bytes);

  // Nothing of an earlier update survives (rule T3).
  void clear();
  // Counting goes on, but sources may come again: their pieces then count anew (rule T9).
  void next_reload();

  // A tensor that feeds a source has come, under this name. kInvalidArgument for a name that came
  // before (its pieces would land twice) or two names that are equal after stripping.
  // True: the first name of this source, its bytes are wanted. False: another name of one that is
  // already there (tied), its bytes are only compared.
  Result<bool> arrive(const model::NameMatch& match, std::string_view name);
  // `bytes` of this piece were written.
  void land(uint32_t piece, uint64_t bytes);
  // All bytes of the source have come. kCorrupt where one of its pieces is not exactly whole.
  Status complete(uint32_t source, std::string_view name, const Digest& digest);
  // The same content under another name. kInvalidArgument unless bitwise equal (rule T4).
  Status compare(uint32_t source, std::string_view name, const Digest& digest) const;

  // Ok only if every parameter is whole (rule T5); else kInvalidArgument naming what is missing:
  // "layers.1.qkv_proj: part v missing".
  Status coverage() const;
  // Names the first sources that did not come so far; empty if all did.
  std::string not_come() const;

  std::span<const uint32_t> pieces_of(uint32_t source) const;
  uint64_t pieces_expected() const { return piece_bytes_.size(); }
  uint64_t pieces_landed() const { return pieces_landed_; }
  uint64_t bytes_landed() const { return bytes_landed_; }

 private:
  struct Label {
    std::string parameter;
    std::string part;
    uint32_t source = 0;
  };
  std::string missing(uint32_t piece) const;
  void forget(uint32_t source);

  std::vector<Label> labels_;  // per piece
  std::vector<uint64_t> piece_bytes_;
  std::vector<uint64_t> landed_;
  std::vector<bool> whole_;
  std::vector<uint32_t> piece_order_;    // pieces, sorted by source
  std::vector<uint32_t> source_begins_;  // per source and one more: its range in piece_order_
  std::vector<std::string> source_names_;
  std::vector<bool> source_arrived_;
  std::vector<bool> source_whole_;
  std::vector<Digest> source_digests_;
  std::vector<std::string> arrived_as_;  // per name of the resolver; empty = did not come
  uint64_t pieces_landed_ = 0;
  uint64_t bytes_landed_ = 0;
};

}  // namespace changeover::update

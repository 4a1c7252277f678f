// Ceilings of a load plan, which may come from a peer.
#pragma once

#include <cstddef>
#include <cstdint>

namespace changeover::model {

inline constexpr int32_t kTpSizeMax = 65536;
inline constexpr int64_t kLoopMax = 65536;               // Layers, experts, slots of a group.
inline constexpr size_t kPlanEntriesMax = 1u << 19;      // Of one kind: pieces, parameters, ...
inline constexpr uint64_t kGranulesMax = 1ull << 28;     // Bits of proof, over the whole plan.
inline constexpr uint64_t kPlanBytesMax = 64ull << 20;   // Of a plan's JSON.
inline constexpr uint64_t kConfigBytesMax = 4ull << 20;  // Of config.json and of a model file.
inline constexpr int64_t kVocabMultipleMax = 1 << 20;

}  // namespace changeover::model

// Shares and placements of experts where they stand inside larger JSON.
#pragma once

#include <changeover/experts.h>
#include <changeover/status.h>

#include "base/json.h"

namespace changeover::model {

// {"ep_rank": 0, "ep_size": 1, "tp_rank": 0, "tp_size": 1}. Each number within its ceiling; that a
// rank is below its size is not checked.
Result<ExpertShare> read_expert_share(base::JsonValue value);

// As parse_expert_placement().
Result<ExpertPlacement> read_expert_placement(base::JsonValue value);

}  // namespace changeover::model

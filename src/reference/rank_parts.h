// A reference rank put together from parts that are there already: what tests replace.
#pragma once

#include <memory>

#include <changeover/load_plan.h>
#include <changeover/parameter_store.h>
#include <changeover/reference_rank.h>
#include <changeover/subscriber.h>

namespace changeover::reference {

struct RankParts {
  LoadPlan plan;
  std::unique_ptr<ParameterStore> store;
  std::unique_ptr<Subscriber> subscriber;
};

Result<std::unique_ptr<ReferenceRank>> make_reference_rank(ReferenceRankOptions options,
                                                           RankParts parts);

}  // namespace changeover::reference

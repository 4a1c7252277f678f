#include "model/plan_builder.h"

#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/utf8.h"
#include "model/evaluator.h"
#include "model/names.h"
#include "model/part_layout.h"
#include "model/plan_limits.h"
#include "model/view.h"

namespace changeover::model {
namespace {

Status invalid(std::string text) {
  return {Code::kInvalidArgument, text};
}

class PlanBuilder {
 public:
  PlanBuilder(const ModelFile& file, base::JsonValue config, std::string_view architecture,
              const PlanOptions& options)
      : file_(file),
        options_(options),
        evaluator_(config),
        planner_(options, plan_.experts, evaluator_),
        config_(config),
        overrides_used_(options.dtypes.size(), false) {
    plan_.architecture = std::string(architecture);
    plan_.generation = options.generation;
    plan_.tp_rank = options.tp_rank;
    plan_.tp_size = options.tp_size;
    plan_.experts = options.experts.value_or(ExpertShare{0, 1, options.tp_rank, options.tp_size});
    plan_.ignorable = file.ignorable;
    plan_.drop_segments = options.drop_segments;
    plan_.optional_segments = options.optional_segments;
    plan_.strip_prefixes = options.strip_prefixes;
    plan_.add_prefix = options.add_prefix;
  }

  Result<LoadPlan> run() {
    CHANGEOVER_TRY(check_options());
    CHANGEOVER_TRY(read_model_dtype());
    CHANGEOVER_TRY(choose_source_form());
    for (const auto& [name, expression] : file_.definitions) {
      CHANGEOVER_TRY_ASSIGN(const Value value, expression.evaluate(evaluator_.scope()));
      evaluator_.scope().push(name, value);
    }
    for (const ModelFile::Requirement& requirement : file_.requirements) {
      CHANGEOVER_TRY_ASSIGN(const bool holds, requirement.that.boolean(evaluator_.scope()));
      if (!holds) {
        return invalid(requirement.message);
      }
    }
    for (const Group& group : file_.groups) {
      CHANGEOVER_TRY(add_group(group));
    }
    CHANGEOVER_TRY(check_overrides());
    for (std::string& name : unused_) {
      if (!sources_.contains(name)) {
        plan_.ignorable.push_back(std::move(name));
      }
    }
    return std::move(plan_);
  }

 private:
  Status check_options() const {
    if (options_.tp_size < 1 || options_.tp_size > kTpSizeMax || options_.tp_rank < 0 ||
        options_.tp_rank >= options_.tp_size) {
      return invalid(fmt::format("tp_rank {} of tp_size {}: a rank is 0 .. size-1, a size 1 .. {}",
                                 options_.tp_rank, options_.tp_size, kTpSizeMax));
    }
    const ExpertShare& experts = plan_.experts;
    for (const auto& [rank, size] : {std::pair(experts.ep_rank, experts.ep_size),
                                     std::pair(experts.tp_rank, experts.tp_size)}) {
      if (size < 1 || size > kTpSizeMax || rank < 0 || rank >= size) {
        return invalid(fmt::format("experts: rank {} of {}: a rank is 0 .. size-1, a size 1 .. {}",
                                   rank, size, kTpSizeMax));
      }
    }
    if (options_.vocab_multiple < 1 || options_.vocab_multiple > kVocabMultipleMax) {
      return invalid(fmt::format("vocab_multiple {}: should be 1 .. {}", options_.vocab_multiple,
                                 kVocabMultipleMax));
    }
    return {};
  }

  Status read_model_dtype() {
    for (const std::string_view key : {"dtype", "torch_dtype"}) {
      const auto value = config_.find(key);
      if (!value || value->is(base::JsonKind::kNull)) {
        continue;
      }
      const auto name = value->string();
      const auto dtype = name ? dtype_from_wire_name(*name) : std::nullopt;
      if (!dtype) {
        return invalid(fmt::format(
            "config.json: \"{}\" is {}, no dtype is called so", key,
            name ? base::quoted(*name) : std::string(base::json_kind_name(value->kind()))));
      }
      model_dtype_ = *dtype;
      return {};
    }
    if (!options_.dtype) {
      return invalid(
          "config.json has no key \"dtype\" (or \"torch_dtype\"); add it, or give the "
          "dtype as an option");
    }
    model_dtype_ = *options_.dtype;
    return {};
  }

  // The variable `source_form`, in files that know several.
  Status choose_source_form() {
    const auto& known = file_.source_forms;
    const std::string& chosen = options_.source_form;
    if (!chosen.empty() && std::find(known.begin(), known.end(), chosen) == known.end()) {
      return invalid(fmt::format(
          "source form {}: its model file knows {}", base::quoted(chosen),
          known.empty() ? "one form alone" : fmt::format("{}", fmt::join(known, ", "))));
    }
    if (!known.empty()) {
      const std::string& form = chosen.empty() ? known[0] : chosen;
      evaluator_.scope().push("source_form", Value::of(std::string_view(form)));
    }
    return {};
  }

  Status check_overrides() const {
    const auto unused = std::find(overrides_used_.begin(), overrides_used_.end(), false);
    if (unused == overrides_used_.end()) {
      return {};
    }
    const auto at = static_cast<size_t>(unused - overrides_used_.begin());
    return invalid(fmt::format("dtype of {}: no parameter is called so",
                               base::quoted(options_.dtypes[at].parameter)));
  }

  Status add_group(const Group& group) {
    if (!group.loop) {
      return add_parameters(group);
    }
    CHANGEOVER_TRY_ASSIGN(const auto range, evaluator_.range_of(*group.loop));
    for (layer_ = range.first; layer_ < range.second; ++layer_) {
      evaluator_.scope().push(group.loop->variable, Value::of(layer_));
      CHANGEOVER_TRY(add_parameters(group));
      evaluator_.scope().pop();
    }
    layer_ = -1;
    return {};
  }

  Status add_parameters(const Group& group) {
    CHANGEOVER_TRY_ASSIGN(const bool wanted, evaluator_.holds(group.when));
    for (size_t i = 0; wanted && i < group.parameters.size(); ++i) {
      const ParameterRule& rule = group.parameters[i];
      CHANGEOVER_TRY_ASSIGN(const std::string name, evaluator_.fill_in(rule.name));
      const Status added = add_parameter(rule, name);
      CHANGEOVER_TRY(added.with_context(fmt::format("parameter {}", base::quoted(name))));
    }
    return {};
  }

  Status add_parameter(const ParameterRule& rule, const std::string& name) {
    CHANGEOVER_TRY_ASSIGN(const bool wanted, evaluator_.holds(rule.when));
    if (!wanted) {
      return {};
    }
    CHANGEOVER_TRY_ASSIGN(const DType dtype, evaluator_.dtype_of(rule.dtype, model_dtype_));
    const DTypeOverride* own = override_of(name);
    TensorSpec spec{name, own ? own->held : dtype, {}};
    std::vector<PartLayout> layouts;
    for (const Part& part : rule.parts) {
      CHANGEOVER_TRY_ASSIGN(const bool part_wanted, evaluator_.holds(part.when));
      if (part_wanted) {
        const std::string context = part.name.empty() ? "shape" : "part " + part.name;
        Result<PartLayout> layout = planner_.lay_out(part, rule.role, spec.dtype, layer_);
        CHANGEOVER_TRY(layout.status().with_context(context));
        if (own) {
          layout->dtype = own->source.value_or(own->held);
          layout->op = layout->dtype == own->held ? PieceOp::kCopy : PieceOp::kCast;
        }
        layouts.push_back(std::move(layout).take());
      }
    }
    CHANGEOVER_TRY(join(rule, layouts, spec));
    if (plan_.parameters.size() >= kPlanEntriesMax) {
      return invalid(fmt::format("more than {} parameters", kPlanEntriesMax));
    }
    plan_.parameters.push_back(std::move(spec));
    if (rule.role == Role::kRowBias && options_.tp_rank != 0) {
      add_padding(whole_view(plan_.parameters.back().shape));
    }
    for (const PartLayout& layout : layouts) {
      CHANGEOVER_TRY(add_part(rule, layout).with_context(layout.part->name));
    }
    return rule.flatten ? flatten(*rule.flatten) : Status();
  }

  // The first that matches, which counts as used.
  const DTypeOverride* override_of(std::string_view parameter) {
    for (size_t i = 0; i < options_.dtypes.size(); ++i) {
      if (matches_pattern(options_.dtypes[i].parameter, parameter)) {
        overrides_used_[i] = true;
        return &options_.dtypes[i];
      }
    }
    return nullptr;
  }

  // Contiguous dimensions become one: the elements stay where they are.
  Status flatten(int64_t dim) {
    std::vector<int64_t>& shape = plan_.parameters.back().shape;
    const auto at = static_cast<size_t>(dim);
    if (at + 1 >= shape.size()) {
      return invalid(fmt::format("flatten {}: there are {} dimensions", dim, shape.size()));
    }
    shape[at] *= shape[at + 1];  // Fits: the element count does.
    shape.erase(shape.begin() + dim + 1);
    return {};
  }

  // The parameter's shape from its parts, and where each part begins.
  static Status join(const ParameterRule& rule, std::vector<PartLayout>& layouts,
                     TensorSpec& spec) {
    const auto concat = static_cast<size_t>(rule.concat);
    for (PartLayout& layout : layouts) {
      std::vector<int64_t>& extents = layout.extents;
      if (&layout == layouts.data()) {
        spec.shape = extents;
        continue;
      }
      if (concat >= extents.size() || extents.size() != spec.shape.size()) {
        return invalid(fmt::format("part {} has {} dimensions, another {}; concat is {}",
                                   layout.part->name, extents.size(), spec.shape.size(), concat));
      }
      layout.concat_offset = spec.shape[concat];
      if (__builtin_add_overflow(spec.shape[concat], extents[concat], &spec.shape[concat])) {
        return invalid("its parts together do not fit 64 bits");
      }
      for (size_t i = 0; i < extents.size(); ++i) {
        if (i != concat && extents[i] != spec.shape[i]) {
          return invalid(fmt::format("part {} has {} in dimension {}, another {}",
                                     layout.part->name, extents[i], i, spec.shape[i]));
        }
      }
    }
    if (layouts.empty()) {
      return invalid("no part of it is wanted");
    }
    CHANGEOVER_TRY(element_count(spec.shape).status());
    return byte_count(spec.dtype, spec.shape).status();
  }

  void add_padding(View view) {
    normalize(view);
    plan_.paddings.push_back({static_cast<uint32_t>(plan_.parameters.size()) - 1, std::move(view)});
  }

  // The pieces of one part, and its padding.
  Status add_part(const ParameterRule& rule, const PartLayout& layout) {
    View target = whole_view(plan_.parameters.back().shape);
    const auto concat = static_cast<size_t>(rule.concat);
    if (concat < layout.extents.size()) {  // Else it is the only part: join() saw to that.
      CHANGEOVER_TRY(slice(target, rule.concat, layout.concat_offset,
                           layout.concat_offset + layout.extents[concat], 1));
    }
    if (layout.split_dim >= 0) {
      View padding = target;
      CHANGEOVER_TRY(slice(padding, layout.split_dim, layout.share.filled, layout.share.extent, 1));
      if (elements_of(padding) > 0) {
        add_padding(std::move(padding));
      }
      CHANGEOVER_TRY(slice(target, layout.split_dim, 0, layout.share.filled, 1));
    }
    // A source of zero elements is wanted all the same: it is sent, received and counted.
    if (layout.absent() || (rule.role == Role::kRowBias && options_.tp_rank != 0)) {
      return add_unused(layout);
    }
    if (layout.part->stack) {
      return add_stack(layout, target);
    }
    return layout.experts.empty() ? add_pieces(layout, target, layout.split_dim)
                                  : add_fused_experts(layout, target);
  }

  // One source per expert. Those of the experts that other ranks hold arrive here all the same.
  Status add_stack(const PartLayout& layout, const View& target) {
    std::vector<bool> held(static_cast<size_t>(layout.stack.second - layout.stack.first), false);
    for (size_t slot = 0; slot < layout.experts.size(); ++slot) {
      View row = target;
      CHANGEOVER_TRY(take(row, 0, static_cast<int64_t>(slot)));
      held[static_cast<size_t>(layout.experts[slot])] = true;
      evaluator_.scope().push(layout.part->stack->variable,
                              Value::of(int64_t{layout.experts[slot]}));
      CHANGEOVER_TRY(add_pieces(layout, row, layout.split_dim - 1));
      evaluator_.scope().pop();
    }
    for (size_t expert = 0; expert < held.size(); ++expert) {
      if (!held[expert]) {
        CHANGEOVER_TRY(add_unused_of(layout, static_cast<int64_t>(expert)));
      }
    }
    return {};
  }

  // One source for all experts: a piece for each run of slots whose experts are equally far apart.
  Status add_fused_experts(PartLayout layout, const View& target) {
    const View whole = layout.source.segments[0];
    const std::vector<int32_t>& experts = layout.experts;
    for (size_t slot = 0; slot < experts.size();) {
      const int64_t step =
          slot + 1 < experts.size() ? int64_t{experts[slot + 1]} - experts[slot] : 0;
      size_t end = slot + 1;
      while (step > 0 && end < experts.size() && experts[end] - experts[end - 1] == step) {
        ++end;
      }
      View rows = target;
      CHANGEOVER_TRY(slice(rows, 0, static_cast<int64_t>(slot), static_cast<int64_t>(end), 1));
      layout.source.segments[0] = whole;
      CHANGEOVER_TRY(slice(layout.source.segments[0], 0, experts[slot], experts[end - 1] + 1,
                           std::max<int64_t>(step, 1)));
      CHANGEOVER_TRY(add_pieces(layout, rows, layout.split_dim));
      slot = end;
    }
    return {};
  }

  // A piece for each segment of the selection that this rank's share reaches into.
  Status add_pieces(const PartLayout& layout, const View& target, int64_t split_dim) {
    const Selection& source = layout.source;
    const auto dim = static_cast<int64_t>(source.dim);
    const bool several = source.segments.size() > 1;
    int64_t at = 0;
    for (const View& segment : source.segments) {
      View from = segment;
      View to = target;
      const int64_t length = several ? segment.dims[source.dim].extent : 0;
      int64_t start = 0;
      int64_t stop = length;
      if (split_dim >= 0 && !(several && split_dim == dim)) {
        const Share& share = layout.share;
        CHANGEOVER_TRY(slice(from, split_dim, share.start, share.start + share.filled, 1));
      } else if (split_dim >= 0) {
        start = std::clamp<int64_t>(layout.share.start - at, 0, length);
        stop = std::clamp<int64_t>(layout.share.start + layout.share.filled - at, start, length);
      }
      if (several) {
        const int64_t first = at + start - (split_dim == dim ? layout.share.start : 0);
        at += length;
        if (start == stop) {
          continue;
        }
        CHANGEOVER_TRY(slice(from, dim, start, stop, 1));
        CHANGEOVER_TRY(slice(to, dim, first, first + stop - start, 1));
      }
      CHANGEOVER_TRY(add_piece(layout, std::move(from), std::move(to)));
    }
    return {};
  }

  Status add_unused(const PartLayout& layout) {
    if (!layout.part->stack) {
      return add_unused_of(layout, std::nullopt);
    }
    for (int64_t i = layout.stack.first; i < layout.stack.second; ++i) {
      CHANGEOVER_TRY(add_unused_of(layout, i));
    }
    return {};
  }

  Status add_unused_of(const PartLayout& layout, std::optional<int64_t> stacked) {
    if (stacked) {
      evaluator_.scope().push(layout.part->stack->variable, Value::of(*stacked));
    }
    CHANGEOVER_TRY_ASSIGN(Source source, source_of(layout));
    if (stacked) {
      evaluator_.scope().pop();
    }
    if (unused_.size() + 1 + source.aliases.size() > kPlanEntriesMax) {
      return invalid(
          fmt::format("more than {} sources that this rank has no part of", kPlanEntriesMax));
    }
    unused_.push_back(std::move(source.spec.name));
    for (std::string& alias : source.aliases) {
      unused_.push_back(std::move(alias));
    }
    return {};
  }

  Result<Source> source_of(const PartLayout& layout) {
    Source source;
    CHANGEOVER_TRY_ASSIGN(source.spec.name, evaluator_.fill_in(layout.part->source));
    source.spec.dtype = layout.dtype;
    source.spec.shape = layout.source_shape;
    for (const Alias& alias : layout.part->aliases) {
      CHANGEOVER_TRY_ASSIGN(const bool wanted, evaluator_.holds(alias.when));
      if (wanted) {
        CHANGEOVER_TRY_ASSIGN(std::string other, evaluator_.fill_in(alias.name));
        source.aliases.push_back(std::move(other));
      }
    }
    return source;
  }

  Status add_piece(const PartLayout& layout, View source, View target) {
    CHANGEOVER_TRY_ASSIGN(Source wanted, source_of(layout));
    if (plan_.pieces.size() >= kPlanEntriesMax) {
      return invalid(fmt::format("more than {} pieces", kPlanEntriesMax));
    }
    const auto [at, added] =
        sources_.try_emplace(wanted.spec.name, static_cast<uint32_t>(plan_.sources.size()));
    if (added) {
      plan_.sources.push_back(std::move(wanted));
    } else if (plan_.sources[at->second].spec != wanted.spec) {
      return invalid(
          fmt::format("source {} has two shapes or dtypes", base::quoted(wanted.spec.name)));
    }
    simplify(source, target);
    plan_.pieces.push_back({at->second, static_cast<uint32_t>(plan_.parameters.size()) - 1,
                            std::move(source), std::move(target), layout.op, layout.part->name});
    return {};
  }

  const ModelFile& file_;
  const PlanOptions& options_;
  LoadPlan plan_;
  Evaluator evaluator_;
  PartPlanner planner_;
  base::JsonValue config_;
  DType model_dtype_ = DType::kF32;
  std::vector<bool> overrides_used_;
  int64_t layer_ = -1;  // Of the group's loop; -1 outside any.
  std::unordered_map<std::string, uint32_t> sources_;
  std::vector<std::string> unused_;  // Sources that reach this rank, which has no use for them.
};

}  // namespace

Result<LoadPlan> build_plan(const ModelFile& file, base::JsonValue config,
                            std::string_view architecture, const PlanOptions& options) {
  return PlanBuilder(file, config, architecture, options).run();
}

}  // namespace changeover::model

namespace changeover {

Status place_rank(const EngineShape& shape, int32_t rank, PlanOptions& options) {
  CHANGEOVER_TRY_ASSIGN(const int32_t ranks, rank_count(shape));
  if (rank < 0 || rank >= ranks) {
    return {Code::kInvalidArgument,
            fmt::format("rank {} of an engine of {}: a rank is 0 .. {}", rank, ranks, ranks - 1)};
  }
  const int32_t group = ranks / shape.ep_size;
  options.tp_rank = rank % shape.tp_size;
  options.tp_size = shape.tp_size;
  options.experts = ExpertShare{rank / group, shape.ep_size, rank % group, group};
  return {};
}

}  // namespace changeover

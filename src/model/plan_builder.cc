#include "model/plan_builder.h"

#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

#include "base/utf8.h"
#include "model/plan_limits.h"
#include "model/shard.h"
#include "model/view.h"

namespace changeover::model {
namespace {

constexpr int64_t kLoopMax = 65536;

Status invalid(std::string text) {
  return {Code::kInvalidArgument, text};
}

// A part of one parameter, worked out for this rank. Dimensions are those of the parameter.
struct PartLayout {
  const Part* part = nullptr;
  DType dtype = DType::kF32;
  std::vector<int64_t> source_shape;
  View source;                   // Of a source; lacks dimension 0 where the part is stacked.
  std::vector<int64_t> extents;  // What the part takes of the parameter, padding included.
  int64_t split_dim = -1;        // -1: whole on every rank.
  Share share;
  int64_t stack_from = 0;
  int64_t concat_offset = 0;
};

class PlanBuilder {
 public:
  PlanBuilder(const ModelFile& file, base::JsonValue config, std::string_view architecture,
              const PlanOptions& options)
      : file_(file), options_(options), scope_(config), config_(config) {
    plan_.architecture = std::string(architecture);
    plan_.generation = options.generation;
    plan_.tp_rank = options.tp_rank;
    plan_.tp_size = options.tp_size;
    plan_.ignorable = file.ignorable;
    plan_.drop_segments = options.drop_segments;
    plan_.strip_prefixes = options.strip_prefixes;
    plan_.add_prefix = options.add_prefix;
  }

  Result<LoadPlan> run() {
    CHANGEOVER_TRY(check_options());
    CHANGEOVER_TRY(read_model_dtype());
    for (const auto& [name, expression] : file_.definitions) {
      CHANGEOVER_TRY_ASSIGN(const Value value, expression.evaluate(scope_));
      scope_.push(name, value);
    }
    for (const ModelFile::Requirement& requirement : file_.requirements) {
      CHANGEOVER_TRY_ASSIGN(const bool holds, requirement.that.boolean(scope_));
      if (!holds) {
        return invalid(requirement.message);
      }
    }
    for (const Group& group : file_.groups) {
      CHANGEOVER_TRY(add_group(group));
    }
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

  Result<bool> holds(const std::optional<Expression>& when) {
    return when ? when->boolean(scope_) : Result<bool>(true);
  }

  Result<DType> dtype_of(const std::optional<DTypeRule>& rule, DType otherwise) {
    if (!rule) {
      return otherwise;
    }
    CHANGEOVER_TRY_ASSIGN(const bool applies, holds(rule->when));
    return applies ? rule->dtype : otherwise;
  }

  Result<std::pair<int64_t, int64_t>> range_of(const Loop& loop) {
    int64_t from = 0;
    if (loop.from) {
      CHANGEOVER_TRY_ASSIGN(from, loop.from->integer(scope_));
    }
    CHANGEOVER_TRY_ASSIGN(const int64_t to, loop.to.integer(scope_));
    if (from < 0 || to < from || to - from > kLoopMax) {
      return invalid(fmt::format("{} = {}: runs from {} to {}, should count up at most {}",
                                 loop.variable, loop.to.text(), from, to, kLoopMax));
    }
    return std::pair<int64_t, int64_t>(from, to);
  }

  Status add_group(const Group& group) {
    if (!group.loop) {
      return add_parameters(group);
    }
    CHANGEOVER_TRY_ASSIGN(const auto range, range_of(*group.loop));
    for (int64_t i = range.first; i < range.second; ++i) {
      scope_.push(group.loop->variable, Value::of(i));
      CHANGEOVER_TRY(add_parameters(group));
      scope_.pop();
    }
    return {};
  }

  Status add_parameters(const Group& group) {
    CHANGEOVER_TRY_ASSIGN(const bool wanted, holds(group.when));
    for (size_t i = 0; wanted && i < group.parameters.size(); ++i) {
      const ParameterRule& rule = group.parameters[i];
      CHANGEOVER_TRY_ASSIGN(const std::string name, fill_in(rule.name));
      const Status added = add_parameter(rule, name);
      CHANGEOVER_TRY(added.with_context(fmt::format("parameter {}", base::quoted(name))));
    }
    return {};
  }

  Result<std::string> fill_in(const Pattern& pattern) {
    std::string name;
    for (const Pattern::Chunk& chunk : pattern.chunks) {
      name += chunk.literal;
      if (!chunk.variable.empty()) {
        CHANGEOVER_TRY_ASSIGN(const Value value, scope_.get(chunk.variable));
        name += std::to_string(value.integer);
      }
    }
    return name;
  }

  Status add_parameter(const ParameterRule& rule, const std::string& name) {
    CHANGEOVER_TRY_ASSIGN(const bool wanted, holds(rule.when));
    if (!wanted) {
      return {};
    }
    CHANGEOVER_TRY_ASSIGN(const DType dtype, dtype_of(rule.dtype, model_dtype_));
    TensorSpec spec{name, dtype, {}};
    std::vector<PartLayout> layouts;
    for (const Part& part : rule.parts) {
      CHANGEOVER_TRY_ASSIGN(const bool part_wanted, holds(part.when));
      if (part_wanted) {
        const std::string context = part.name.empty() ? "shape" : "part " + part.name;
        Result<PartLayout> layout = lay_out(part, rule.role, spec.dtype);
        CHANGEOVER_TRY(layout.status().with_context(context));
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
      if (spec.shape.empty()) {
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

  Result<PartLayout> lay_out(const Part& part, Role role, DType parameter_dtype) {
    PartLayout layout;
    layout.part = &part;
    CHANGEOVER_TRY_ASSIGN(layout.dtype, dtype_of(part.dtype, parameter_dtype));
    for (const Expression& dim : part.shape) {
      CHANGEOVER_TRY_ASSIGN(const int64_t extent, dim.integer(scope_));
      if (extent < 0) {
        return invalid(fmt::format("{} = {}, a dimension is not negative", dim.text(), extent));
      }
      layout.source_shape.push_back(extent);
    }
    CHANGEOVER_TRY(element_count(layout.source_shape).status());
    layout.source = whole_view(layout.source_shape);
    for (const Step& step : part.view) {
      CHANGEOVER_TRY(apply_step(step, layout.source));
    }
    if (part.stack) {
      CHANGEOVER_TRY_ASSIGN(const auto range, range_of(*part.stack));
      layout.stack_from = range.first;
      layout.extents.push_back(range.second - range.first);
    }
    for (const View::Dim& dim : layout.source.dims) {
      layout.extents.push_back(dim.extent);
    }
    CHANGEOVER_TRY(share_out(part, role, layout));
    return layout;
  }

  Status apply_step(const Step& step, View& view) {
    std::vector<std::optional<int64_t>> values;
    for (const std::optional<Expression>& argument : step.arguments) {
      values.emplace_back();
      if (argument) {
        CHANGEOVER_TRY_ASSIGN(values.back(), argument->integer(scope_));
      }
    }
    switch (step.op) {
      case Step::Op::kTranspose:
        return transpose(view, step.order);
      case Step::Op::kSlice: {
        const bool exists = step.dim < static_cast<int64_t>(view.dims.size());
        const int64_t extent = exists ? view.dims[static_cast<size_t>(step.dim)].extent : 0;
        return slice(view, step.dim, values[0].value_or(0), values[1].value_or(extent),
                     values[2].value_or(1));
      }
      case Step::Op::kSplit:
        return split(view, step.dim, *values[0], *values[1]);
      case Step::Op::kMerge:
        return merge(view, step.dim);
      case Step::Op::kTake:
        return take(view, step.dim, *values[0]);
    }
    return {};
  }

  // Sets which dimension is dealt out, and this rank's share of it.
  Status share_out(const Part& part, Role role, PartLayout& layout) {
    if (role == Role::kColumn || role == Role::kVocab) {
      layout.split_dim = 0;
    } else if (role == Role::kRow) {
      layout.split_dim = 1;
    }
    if (part.split && part.split->dim) {
      layout.split_dim = *part.split->dim;
    }
    if (layout.split_dim < 0) {
      return {};
    }
    const auto dim = static_cast<size_t>(layout.split_dim);
    if (dim >= layout.extents.size()) {
      return invalid(
          fmt::format("dimension {} is dealt out, there are {}", dim, layout.extents.size()));
    }
    ShareRequest request;
    request.extent = layout.extents[dim];
    request.tp_rank = options_.tp_rank;
    request.tp_size = options_.tp_size;
    std::string count_text = "units of dimension " + std::to_string(dim);
    if (part.view.empty() && !part.stack) {
      count_text = part.shape[dim].text();
    }
    if (role == Role::kVocab) {
      request.unit = vocabulary_unit(options_.vocab_multiple, options_.tp_size);
      request.pad = true;
    } else if (part.split) {
      CHANGEOVER_TRY(read_units(*part.split, request, count_text));
    }
    request.count_text = count_text;
    CHANGEOVER_TRY_ASSIGN(layout.share, share_of(request));
    layout.extents[dim] = layout.share.extent;
    return {};
  }

  Status read_units(const Split& split, ShareRequest& request, std::string& count_text) {
    request.replicate = split.replicate;
    request.pad = split.pad;
    if (split.unit) {
      CHANGEOVER_TRY_ASSIGN(request.unit, split.unit->integer(scope_));
      count_text = fmt::format("({}) / ({})", count_text, split.unit->text());
    }
    if (!split.count) {
      return {};
    }
    count_text = split.count->text();
    CHANGEOVER_TRY_ASSIGN(const int64_t count, split.count->integer(scope_));
    if (count < 1 || request.extent % count != 0) {
      return invalid(fmt::format("{} elements cannot be dealt out as {} = {} units", request.extent,
                                 count_text, count));
    }
    if (split.unit && request.extent / count != request.unit) {
      return invalid(fmt::format("{} elements are not {} = {} units of {} = {}", request.extent,
                                 count_text, count, split.unit->text(), request.unit));
    }
    request.unit = request.extent / count;
    return {};
  }

  void add_padding(View view) {
    normalize(view);
    plan_.paddings.push_back({static_cast<uint32_t>(plan_.parameters.size()) - 1, std::move(view)});
  }

  // The pieces of one part, and its padding.
  Status add_part(const ParameterRule& rule, const PartLayout& layout) {
    const bool absent = rule.role == Role::kRowBias && options_.tp_rank != 0;
    View target = whole_view(plan_.parameters.back().shape);
    const auto concat = static_cast<size_t>(rule.concat);
    if (!target.dims.empty()) {
      CHANGEOVER_TRY(slice(target, rule.concat, layout.concat_offset,
                           layout.concat_offset + layout.extents[concat], 1));
    }
    View source = layout.source;
    if (layout.split_dim >= 0) {
      const Share& share = layout.share;
      View padding = target;
      CHANGEOVER_TRY(slice(padding, layout.split_dim, share.filled, share.extent, 1));
      if (elements_of(padding) > 0) {
        add_padding(std::move(padding));
      }
      CHANGEOVER_TRY(slice(target, layout.split_dim, 0, share.filled, 1));
      const int64_t source_dim = layout.split_dim - (layout.part->stack ? 1 : 0);
      CHANGEOVER_TRY(slice(source, source_dim, share.start, share.start + share.filled, 1));
    }
    // A source of zero elements is wanted all the same: it is sent, received and counted.
    const bool empty = elements_of(source) == 0 && elements_of(layout.source) > 0;
    if (!layout.part->stack) {
      return add_piece(layout, std::move(source), std::move(target), absent || empty);
    }
    const int64_t count = target.dims[0].extent;
    for (int64_t i = 0; i < count; ++i) {
      View row = target;
      CHANGEOVER_TRY(take(row, 0, i));
      scope_.push(layout.part->stack->variable, Value::of(layout.stack_from + i));
      CHANGEOVER_TRY(add_piece(layout, source, std::move(row), absent || empty));
      scope_.pop();
    }
    return {};
  }

  Status add_piece(const PartLayout& layout, View source, View target, bool unused) {
    CHANGEOVER_TRY_ASSIGN(std::string name, fill_in(layout.part->source));
    std::vector<std::string> aliases;
    for (const Alias& alias : layout.part->aliases) {
      CHANGEOVER_TRY_ASSIGN(const bool wanted, holds(alias.when));
      if (wanted) {
        CHANGEOVER_TRY_ASSIGN(std::string other, fill_in(alias.name));
        aliases.push_back(std::move(other));
      }
    }
    if (unused) {
      unused_.push_back(std::move(name));
      unused_.insert(unused_.end(), aliases.begin(), aliases.end());
      return {};
    }
    if (plan_.pieces.size() >= kPlanEntriesMax) {
      return invalid(fmt::format("more than {} pieces", kPlanEntriesMax));
    }
    const auto [at, added] =
        sources_.try_emplace(name, static_cast<uint32_t>(plan_.sources.size()));
    TensorSpec spec{std::move(name), layout.dtype, layout.source_shape};
    if (added) {
      plan_.sources.push_back({std::move(spec), std::move(aliases)});
    } else if (plan_.sources[at->second].spec != spec) {
      return invalid(fmt::format("source {} has two shapes or dtypes", base::quoted(spec.name)));
    }
    simplify(source, target);
    plan_.pieces.push_back({at->second, static_cast<uint32_t>(plan_.parameters.size()) - 1,
                            std::move(source), std::move(target), layout.part->op,
                            layout.part->name});
    return {};
  }

  const ModelFile& file_;
  const PlanOptions& options_;
  Scope scope_;
  base::JsonValue config_;
  DType model_dtype_ = DType::kF32;
  LoadPlan plan_;
  std::unordered_map<std::string, uint32_t> sources_;
  std::vector<std::string> unused_;  // Sources that reach this rank, which has no use for them.
};

}  // namespace

Result<LoadPlan> build_plan(const ModelFile& file, base::JsonValue config,
                            std::string_view architecture, const PlanOptions& options) {
  return PlanBuilder(file, config, architecture, options).run();
}

}  // namespace changeover::model

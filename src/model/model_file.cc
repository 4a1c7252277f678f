#include "model/model_file.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/json.h"
#include "base/utf8.h"
#include "model/fields.h"
#include "model/plan_limits.h"

namespace changeover::model {
namespace {

using base::JsonValue;

constexpr size_t kListMax = 4096;  // Groups, parameters, parts, definitions: of one list.

Status invalid(std::string text) {
  return {Code::kInvalidArgument, text};
}

Result<Expression> read_expression(std::string_view key, JsonValue value) {
  const auto text = value.string();
  const auto number = value.integer();
  if (!text && !number) {
    return wrong_kind(key, "an expression (a string or an integer)", value);
  }
  Result<Expression> expression = Expression::parse(text ? *text : std::to_string(*number));
  return expression.ok() ? std::move(expression) : expression.status().with_context(key);
}

Result<std::optional<Expression>> read_optional(const Fields& fields, std::string_view key) {
  const auto value = fields.find(key);
  if (!value) {
    return std::optional<Expression>();
  }
  CHANGEOVER_TRY_ASSIGN(Expression expression, read_expression(key, *value));
  return std::optional<Expression>(std::move(expression));
}

// Names of the loop variables that a pattern may use.
using Variables = std::vector<std::string>;

Result<Pattern> read_pattern(std::string_view text, const Variables& variables) {
  Pattern pattern;
  std::string literal;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '}' || text[i] == '*' || text[i] == '\0') {
      return invalid(fmt::format("name pattern {}: a stray '}}', '*' or NUL", base::quoted(text)));
    }
    if (text[i] != '{') {
      literal += text[i];
      continue;
    }
    const size_t end = text.find('}', i);
    const std::string_view name =
        text.substr(i + 1, end == std::string_view::npos ? 0 : end - i - 1);
    if (std::find(variables.begin(), variables.end(), name) == variables.end()) {
      return invalid(fmt::format("name pattern {}: no loop around it has the variable {}",
                                 base::quoted(text), base::quoted(name)));
    }
    pattern.chunks.push_back({std::move(literal), std::string(name)});
    literal.clear();
    i = end;
  }
  if (text.empty() || text.size() > kTensorNameBytesMax) {
    return invalid(fmt::format("a name pattern has 1 to {} bytes", kTensorNameBytesMax));
  }
  pattern.chunks.push_back({std::move(literal), ""});
  return pattern;
}

// {"layer": "count"} or {"layer": ["from", "to"]}
Result<std::optional<Loop>> read_loop(const Fields& fields, Variables& variables) {
  const auto value = fields.find("for");
  if (!value) {
    return std::optional<Loop>();
  }
  if (!value->is(base::JsonKind::kObject) || value->size() != 1) {
    return invalid("\"for\": should be an object with one variable");
  }
  const base::JsonMember member = *value->members().begin();
  Loop loop;
  loop.variable = std::string(member.key);
  if (loop.variable.empty() || loop.variable.size() > 64 ||
      std::find(variables.begin(), variables.end(), loop.variable) != variables.end()) {
    return invalid(fmt::format("\"for\": variable {} is empty, too long or taken",
                               base::quoted(loop.variable)));
  }
  JsonValue to = member.value;
  if (to.is(base::JsonKind::kArray)) {
    if (to.size() != 2) {
      return invalid("\"for\": a range is [from, to]");
    }
    auto element = to.elements().begin();
    CHANGEOVER_TRY_ASSIGN(loop.from, read_expression("for", *element));
    ++element;
    to = *element;
  }
  CHANGEOVER_TRY_ASSIGN(loop.to, read_expression("for", to));
  variables.push_back(loop.variable);
  return std::optional<Loop>(std::move(loop));
}

Result<Role> read_role(const Fields& fields) {
  struct Known {
    std::string_view name;
    Role role;
  };
  static constexpr std::array<Known, 6> kRoles = {{{"replicate", Role::kReplicate},
                                                   {"column", Role::kColumn},
                                                   {"row", Role::kRow},
                                                   {"row_bias", Role::kRowBias},
                                                   {"vocab", Role::kVocab},
                                                   {"expert", Role::kExpert}}};
  CHANGEOVER_TRY_ASSIGN(const std::string_view name, fields.string("role"));
  for (const Known& known : kRoles) {
    if (known.name == name) {
      return known.role;
    }
  }
  return invalid(
      fmt::format("no role is called {}; there are replicate, column, row, row_bias, "
                  "vocab and expert",
                  base::quoted(name)));
}

// "float32", or {"when": "fp8", "then": "float8_e4m3fn"}.
Result<std::optional<DTypeRule>> read_dtype(const Fields& fields, std::string_view key) {
  const auto value = fields.find(key);
  if (!value) {
    return std::optional<DTypeRule>();
  }
  DTypeRule rule;
  if (!value->is(base::JsonKind::kObject)) {
    CHANGEOVER_TRY_ASSIGN(const std::optional<DType> dtype, fields.dtype(key));
    rule.dtype = *dtype;
    return std::optional<DTypeRule>(std::move(rule));
  }
  CHANGEOVER_TRY_ASSIGN(const Fields choice, Fields::make(*value, {"when", "then"}));
  CHANGEOVER_TRY_ASSIGN(const std::optional<DType> dtype, choice.dtype("then"));
  CHANGEOVER_TRY_ASSIGN(rule.when, read_optional(choice, "when"));
  if (!dtype || !rule.when) {
    return invalid(fmt::format("\"{}\": an object of \"when\" and \"then\"", key));
  }
  rule.dtype = *dtype;
  return std::optional<DTypeRule>(std::move(rule));
}

Result<std::optional<Split>> read_split(const Fields& fields) {
  const auto value = fields.find("split");
  if (!value) {
    return std::optional<Split>();
  }
  CHANGEOVER_TRY_ASSIGN(const Fields split,
                        Fields::make(*value, {"dim", "count", "unit", "replicate", "pad"}));
  Split result;
  if (split.find("dim")) {
    CHANGEOVER_TRY_ASSIGN(result.dim, split.integer("dim", 0, kViewDimsMax - 1));
  }
  CHANGEOVER_TRY_ASSIGN(result.count, read_optional(split, "count"));
  CHANGEOVER_TRY_ASSIGN(result.unit, read_optional(split, "unit"));
  CHANGEOVER_TRY_ASSIGN(result.replicate, split.boolean_or("replicate", false));
  CHANGEOVER_TRY_ASSIGN(result.pad, split.boolean_or("pad", false));
  if (result.replicate && result.pad) {
    return invalid("\"split\": replicate and pad exclude each other");
  }
  return std::optional<Split>(std::move(result));
}

// {"slice": {"dim": 2, "start": 0, "stop": "n", "step": 2}} and its like.
Result<Step> read_step(JsonValue value) {
  if (!value.is(base::JsonKind::kObject) || value.size() != 1) {
    return invalid("\"view\": a step is an object with one key");
  }
  const base::JsonMember member = *value.members().begin();
  Step step;
  if (member.key == "transpose") {
    CHANGEOVER_TRY_ASSIGN(const Fields whole, Fields::make(value, {"transpose"}));
    CHANGEOVER_TRY_ASSIGN(step.order, whole.integers("transpose", kViewDimsMax));
    return step;
  }
  struct Known {
    std::string_view name;
    Step::Op op;
    std::vector<std::string_view> arguments;
  };
  static const std::array<Known, 4> kSteps = {
      {{"slice", Step::Op::kSlice, {"start", "stop", "step"}},
       {"split", Step::Op::kSplit, {"outer", "inner"}},
       {"merge", Step::Op::kMerge, {}},
       {"take", Step::Op::kTake, {"index"}}}};
  const auto known = std::find_if(kSteps.begin(), kSteps.end(),
                                  [&](const Known& entry) { return entry.name == member.key; });
  if (known == kSteps.end()) {
    return invalid(fmt::format("\"view\": no step is called {}", base::quoted(member.key)));
  }
  step.op = known->op;
  CHANGEOVER_TRY_ASSIGN(
      const Fields fields,
      Fields::make(member.value, {"dim", "start", "stop", "step", "outer", "inner", "index"}));
  CHANGEOVER_TRY_ASSIGN(step.dim, fields.integer("dim", 0, kViewDimsMax - 1));
  for (const std::string_view key : known->arguments) {
    CHANGEOVER_TRY_ASSIGN(std::optional<Expression> argument, read_optional(fields, key));
    if (!argument && step.op != Step::Op::kSlice) {  // A slice may leave any of its three out.
      return invalid(fmt::format("\"{}\": the key \"{}\" is missing", member.key, key));
    }
    step.arguments.push_back(std::move(argument));
  }
  const auto given =
      static_cast<size_t>(std::count_if(step.arguments.begin(), step.arguments.end(),
                                        [](const auto& argument) { return argument.has_value(); }));
  if (member.value.size() != given + 1) {
    return invalid(fmt::format("\"{}\": a key of another step", member.key));
  }
  return step;
}

Result<std::vector<Alias>> read_aliases(const Fields& fields, const Variables& variables) {
  std::vector<Alias> aliases;
  if (!fields.find("aliases")) {
    return aliases;
  }
  CHANGEOVER_TRY_ASSIGN(const JsonValue list, fields.array("aliases", 16));
  for (const JsonValue element : list.elements()) {
    CHANGEOVER_TRY_ASSIGN(const Fields alias, Fields::make(element, {"name", "when"}));
    CHANGEOVER_TRY_ASSIGN(const std::string_view name, alias.string("name"));
    Alias result;
    CHANGEOVER_TRY_ASSIGN(result.name, read_pattern(name, variables));
    CHANGEOVER_TRY_ASSIGN(result.when, read_optional(alias, "when"));
    aliases.push_back(std::move(result));
  }
  return aliases;
}

Result<Layout> read_layout(const Fields& fields) {
  CHANGEOVER_TRY_ASSIGN(const std::string_view name, fields.string_or("layout", ""));
  if (name == "out_in" || name == "in_out") {
    return name == "out_in" ? Layout::kOutIn : Layout::kInOut;
  }
  return fields.find("layout") ? Result<Layout>(invalid("\"layout\" is out_in or in_out"))
                               : Layout::kUndeclared;
}

// The keys of a part, which stand in the parameter itself where it has one part.
Result<Part> read_part(const Fields& fields, const std::string& prefix, Variables variables,
                       std::string_view default_source) {
  Part part;
  CHANGEOVER_TRY_ASSIGN(part.stack, read_loop(fields, variables));
  CHANGEOVER_TRY_ASSIGN(const std::string_view source,
                        default_source.empty() ? fields.string("source")
                                               : fields.string_or("source", default_source));
  CHANGEOVER_TRY_ASSIGN(part.source, read_pattern(prefix + std::string(source), variables));
  CHANGEOVER_TRY_ASSIGN(const JsonValue shape, fields.array("shape", kViewDimsMax));
  for (const JsonValue dim : shape.elements()) {
    CHANGEOVER_TRY_ASSIGN(Expression expression, read_expression("shape", dim));
    part.shape.push_back(std::move(expression));
  }
  CHANGEOVER_TRY_ASSIGN(part.dtype, read_dtype(fields, "source_dtype"));
  if (fields.find("view")) {
    CHANGEOVER_TRY_ASSIGN(const JsonValue view, fields.array("view", 16));
    for (const JsonValue element : view.elements()) {
      CHANGEOVER_TRY_ASSIGN(Step step, read_step(element));
      part.view.push_back(std::move(step));
    }
  }
  CHANGEOVER_TRY_ASSIGN(part.layout, read_layout(fields));
  CHANGEOVER_TRY_ASSIGN(part.split, read_split(fields));
  CHANGEOVER_TRY_ASSIGN(part.aliases, read_aliases(fields, variables));
  CHANGEOVER_TRY_ASSIGN(const std::string_view op, fields.string_or("op", "copy"));
  if (op != "copy" && op != "cast") {
    return invalid(fmt::format("no op is called {}; there are copy and cast", base::quoted(op)));
  }
  part.op = op == "cast" ? PieceOp::kCast : PieceOp::kCopy;
  return part;
}

// What the grammar can spell but has no meaning.
Status check_part(const ParameterRule& rule, const Part& part) {
  const bool has_split = part.split.has_value();
  if (part.stack && (rule.role != Role::kExpert || rule.concat == 0)) {
    return invalid("\"for\" in a part needs the role expert, and a concat of 1 or more");
  }
  if (part.layout != Layout::kUndeclared && (rule.role != Role::kExpert || part.stack)) {
    return invalid("\"layout\" is for a source that holds all experts, in the role expert");
  }
  if (has_split &&
      (rule.role == Role::kReplicate || rule.role == Role::kRowBias || rule.role == Role::kVocab)) {
    return invalid("\"split\" does not go with the roles replicate, row_bias and vocab");
  }
  if (has_split && rule.role == Role::kExpert && part.split->dim.value_or(0) == 0) {
    return invalid("\"split\" in the role expert needs a dim of 1 or more");
  }
  return {};
}

Result<ParameterRule> read_parameter(JsonValue value, const std::string& prefix,
                                     const Variables& variables) {
  const bool has_parts = value.find("parts").has_value();
  Result<Fields> made =
      has_parts
          ? Fields::make(value, {"name", "when", "role", "dtype", "concat", "flatten", "parts"})
          : Fields::make(value, {"name", "when", "role", "dtype", "for", "source", "shape",
                                 "source_dtype", "view", "layout", "split", "aliases", "op"});
  CHANGEOVER_TRY_ASSIGN(const Fields fields, std::move(made));
  CHANGEOVER_TRY_ASSIGN(const std::string_view name, fields.string("name"));
  ParameterRule rule;
  CHANGEOVER_TRY_ASSIGN(rule.name, read_pattern(prefix + std::string(name), variables));
  CHANGEOVER_TRY_ASSIGN(rule.when, read_optional(fields, "when"));
  CHANGEOVER_TRY_ASSIGN(rule.role, read_role(fields));
  CHANGEOVER_TRY_ASSIGN(rule.dtype, read_dtype(fields, "dtype"));
  CHANGEOVER_TRY_ASSIGN(rule.concat, fields.integer_or("concat", 0, kViewDimsMax - 1, 0));
  if (fields.find("flatten")) {
    CHANGEOVER_TRY_ASSIGN(rule.flatten, fields.integer("flatten", 0, kViewDimsMax - 2));
  }
  if (!has_parts) {
    CHANGEOVER_TRY_ASSIGN(Part part, read_part(fields, prefix, variables, name));
    rule.concat = part.stack ? 1 : 0;
    CHANGEOVER_TRY(check_part(rule, part));
    rule.parts.push_back(std::move(part));
    return rule;
  }
  CHANGEOVER_TRY_ASSIGN(const JsonValue parts, fields.array("parts", 64));
  for (const JsonValue element : parts.elements()) {
    CHANGEOVER_TRY_ASSIGN(
        const Fields part_fields,
        Fields::make(element, {"part", "when", "for", "source", "shape", "source_dtype", "view",
                               "layout", "split", "aliases", "op"}));
    CHANGEOVER_TRY_ASSIGN(Part part, read_part(part_fields, prefix, variables, ""));
    CHANGEOVER_TRY_ASSIGN(part.name, part_fields.string("part"));
    CHANGEOVER_TRY_ASSIGN(part.when, read_optional(part_fields, "when"));
    CHANGEOVER_TRY(check_part(rule, part));
    rule.parts.push_back(std::move(part));
  }
  return rule.parts.empty() ? Result<ParameterRule>(invalid("\"parts\" is empty"))
                            : std::move(rule);
}

Result<Group> read_group(JsonValue value) {
  CHANGEOVER_TRY_ASSIGN(const Fields fields,
                        Fields::make(value, {"for", "when", "prefix", "parameters"}));
  Group group;
  Variables variables;
  CHANGEOVER_TRY_ASSIGN(group.loop, read_loop(fields, variables));
  CHANGEOVER_TRY_ASSIGN(group.when, read_optional(fields, "when"));
  CHANGEOVER_TRY_ASSIGN(const std::string_view prefix, fields.string_or("prefix", ""));
  CHANGEOVER_TRY_ASSIGN(const JsonValue parameters, fields.array("parameters", kListMax));
  for (const JsonValue element : parameters.elements()) {
    Result<ParameterRule> rule = read_parameter(element, std::string(prefix), variables);
    if (!rule.ok()) {
      const auto name = element.find("name");
      return rule.status().with_context(
          fmt::format("parameters[{}] {}", group.parameters.size(),
                      name && name->string() ? base::quoted(*name->string()) : ""));
    }
    group.parameters.push_back(std::move(rule).take());
  }
  return group;
}

Status read_definitions(const Fields& root, ModelFile& file) {
  const auto let = root.find("let");
  if (!let) {
    return {};
  }
  if (!let->is(base::JsonKind::kObject) || let->size() > kListMax) {
    return wrong_kind("let", fmt::format("an object of at most {} definitions", kListMax), *let);
  }
  for (const base::JsonMember member : let->members()) {
    CHANGEOVER_TRY_ASSIGN(Expression expression, read_expression(member.key, member.value));
    file.definitions.emplace_back(member.key, std::move(expression));
  }
  return {};
}

Status read_requirements(const Fields& root, ModelFile& file) {
  if (!root.find("require")) {
    return {};
  }
  CHANGEOVER_TRY_ASSIGN(const JsonValue list, root.array("require", kListMax));
  for (const JsonValue element : list.elements()) {
    CHANGEOVER_TRY_ASSIGN(const Fields fields, Fields::make(element, {"that", "message"}));
    CHANGEOVER_TRY_ASSIGN(const JsonValue that, fields.required("that"));
    ModelFile::Requirement requirement;
    CHANGEOVER_TRY_ASSIGN(requirement.that, read_expression("that", that));
    CHANGEOVER_TRY_ASSIGN(const std::string_view message, fields.string("message"));
    requirement.message = std::string(message);
    file.requirements.push_back(std::move(requirement));
  }
  return {};
}

Result<ModelFile> read_root(JsonValue value) {
  CHANGEOVER_TRY_ASSIGN(const Fields root, Fields::make(value, {"format", "about", "architectures",
                                                                "parse_only", "source_forms", "let",
                                                                "require", "groups", "ignorable"}));
  CHANGEOVER_TRY(root.integer("format", 1, 1).status());
  CHANGEOVER_TRY(root.string_or("about", "").status());
  ModelFile file;
  CHANGEOVER_TRY_ASSIGN(file.architectures, root.strings("architectures", 64));
  if (file.architectures.empty()) {
    return invalid("\"architectures\" is empty");
  }
  CHANGEOVER_TRY_ASSIGN(const std::string_view parse_only, root.string_or("parse_only", ""));
  file.parse_only = std::string(parse_only);
  if (root.find("source_forms")) {
    CHANGEOVER_TRY_ASSIGN(file.source_forms, root.strings("source_forms", 16));
  }
  CHANGEOVER_TRY(read_definitions(root, file));
  CHANGEOVER_TRY(read_requirements(root, file));
  if (root.find("ignorable")) {
    CHANGEOVER_TRY_ASSIGN(file.ignorable, root.strings("ignorable", kListMax));
  }
  CHANGEOVER_TRY_ASSIGN(const JsonValue groups, root.array("groups", kListMax));
  for (const JsonValue element : groups.elements()) {
    Result<Group> group = read_group(element);
    if (!group.ok()) {
      return group.status().with_context(fmt::format("groups[{}]", file.groups.size()));
    }
    file.groups.push_back(std::move(group).take());
  }
  return file;
}

}  // namespace

Result<ModelFile> ModelFile::parse(std::string_view json) {
  Result<base::JsonDocument> document =
      base::JsonDocument::parse(json, {.bytes_max = kConfigBytesMax, .depth_max = 16});
  if (!document.ok()) {
    return document.status().with_context("model file");
  }
  Result<ModelFile> file = read_root(document->root());
  return file.ok() ? std::move(file) : file.status().with_context("model file");
}

}  // namespace changeover::model

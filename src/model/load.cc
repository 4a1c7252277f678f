// The public way in: config.json and model files from disk, model files from the library.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <changeover/load_plan.h>

#include <fmt/format.h>

#include "base/utf8.h"
#include "model/model_file.h"
#include "model/plan_builder.h"
#include "model/plan_limits.h"

namespace changeover {
namespace {

Result<std::string> read_file(const std::filesystem::path& path) {
  std::error_code error;
  const bool regular = std::filesystem::is_regular_file(path, error);
  std::ifstream in(path, std::ios::binary);
  if (!regular || !in) {
    return Status(Code::kInvalidArgument, fmt::format("{}: no such file, or it cannot be read",
                                                      base::quoted(path.string(), 1000)));
  }
  std::string text(model::kConfigBytesMax + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.size() > model::kConfigBytesMax) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: larger than {} bytes", base::quoted(path.string(), 1000),
                              model::kConfigBytesMax));
  }
  return text;
}

}  // namespace

Result<LoadPlan> make_load_plan(const std::filesystem::path& config, const PlanOptions& options) {
  std::error_code error;
  const bool directory = std::filesystem::is_directory(config, error);
  const std::filesystem::path path = directory ? config / "config.json" : config;
  CHANGEOVER_TRY_ASSIGN(const std::string text, read_file(path));
  auto files = model::embedded_model_files();
  std::string own_name;
  std::string own_text;
  if (!options.model_file.empty()) {
    CHANGEOVER_TRY_ASSIGN(own_text, read_file(options.model_file));
    own_name = options.model_file.string();
    files = {{own_name, own_text}};
  }
  Result<LoadPlan> plan = model::plan_from_text(text, files, options);
  return plan.ok() ? std::move(plan) : plan.status().with_context(path.string());
}

std::vector<ModelFileInfo> model_files() {
  std::vector<ModelFileInfo> infos;
  for (const auto& [name, text] : model::embedded_model_files()) {
    Result<model::ModelFile> file = model::ModelFile::parse(text);
    for (size_t i = 0; file.ok() && i < file->architectures.size(); ++i) {
      infos.push_back({file->architectures[i], !file->parse_only.empty()});
    }
  }
  std::sort(infos.begin(), infos.end(), [](const ModelFileInfo& a, const ModelFileInfo& b) {
    return a.architecture < b.architecture;
  });
  return infos;
}

}  // namespace changeover

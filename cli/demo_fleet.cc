#include "cli/demo_fleet.h"

#include <chrono>
#include <cstdio>
#include <utility>

#include <changeover/admin.h>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "cli/terminal.h"

namespace changeover::cli {
namespace {

using Json = nlohmann::json;

std::optional<int64_t> version_of(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_object()) {
    return std::nullopt;
  }
  return found->value("version", int64_t{0});
}

void read_status(const Json& json, RankView& view) {
  view.answered = true;
  view.connected = json.value("connected", false);
  view.version = version_of(json, "version");
  view.fenced = json.value("fenced", false);
  view.fence_reason = json.value("fence_reason", "");
  const Json steps = json.value("steps", Json::object());
  view.waiting_for = steps.value("waiting_for", "");
  view.serving = json.value("gate_open", false) && view.waiting_for.empty();
  view.steps = steps.value("run", uint64_t{0});
  view.steps_mixed = steps.value("mixed", uint64_t{0});
  for (const Json& pause : steps.value("pauses", Json::array())) {
    view.steps_on = version_of(pause, "to");
    if (version_of(pause, "from")) {
      view.pause_seconds = pause.value("seconds", 0.0);
    }
  }
}

std::string state_text(const RankView& view) {
  if (!view.alive) {
    return coloured("dead", Colour::kRed, stdout);
  }
  if (!view.answered) {
    return coloured("starting", Colour::kDim, stdout);
  }
  if (view.fenced) {
    return coloured("fenced: " + printable(view.fence_reason), Colour::kYellow, stdout);
  }
  return view.serving
             ? coloured("serving", Colour::kGreen, stdout)
             : coloured("pending: " + printable(view.waiting_for), Colour::kYellow, stdout);
}

}  // namespace

Fleet::Fleet(FleetOptions options) : options_(std::move(options)) {
  for (const std::string& engine : options_.engines) {
    for (int32_t rank = 0; rank < options_.tp_size; ++rank) {
      RankView view;
      view.engine = engine;
      view.rank = rank;
      views_.push_back(std::move(view));
    }
  }
  children_.resize(views_.size());
}

std::string Fleet::admin(size_t index) const {
  return fmt::format("unix:{}/{}{}", options_.folder, views_[index].engine, views_[index].rank);
}

std::string Fleet::log(size_t index) const {
  return fmt::format("{}/{}{}.log", options_.folder, views_[index].engine, views_[index].rank);
}

size_t Fleet::index_of(const std::string& engine, int32_t rank) const {
  for (size_t i = 0; i < views_.size(); ++i) {
    if (views_[i].engine == engine && views_[i].rank == rank) {
      return i;
    }
  }
  return 0;
}

Status Fleet::start(size_t index) {
  const RankView& view = views_[index];
  CHANGEOVER_TRY_ASSIGN(
      children_[index],
      Child::start_self(
          {"receive", "--model", options_.model, "--from", options_.endpoint, "--engine",
           view.engine, "--tp", std::to_string(options_.tp_size), "--rank",
           std::to_string(view.rank), "--mode", options_.mode, "--admin", admin(index)},
          log(index)));
  RankView fresh;
  fresh.engine = view.engine;
  fresh.rank = view.rank;
  fresh.alive = true;
  views_[index] = std::move(fresh);
  return {};
}

void Fleet::kill(size_t index) {
  children_[index].reset();
  views_[index].alive = false;
  views_[index].serving = false;
}

void Fleet::look() {
  for (size_t i = 0; i < views_.size(); ++i) {
    RankView& view = views_[i];
    view.alive = children_[i] != nullptr && children_[i]->running();
    if (!view.alive) {
      view.serving = false;
      continue;
    }
    const auto reply = admin_request(admin(i), R"({"format":1,"request":"status"})",
                                     std::chrono::milliseconds(500));
    const Json json = reply.ok() ? Json::parse(*reply, nullptr, false) : Json();
    if (json.is_object() && json.value("ok", false)) {
      read_status(json, view);
    }
  }
  // Rank 0 conducts the steps of its engine, so it knows first why there are none.
  for (RankView& view : views_) {
    const RankView& conductor = views_[index_of(view.engine, 0)];
    if (view.serving && !conductor.serving) {
      view.serving = false;
      view.waiting_for = conductor.waiting_for;
    }
  }
}

std::string fleet_text(const std::vector<RankView>& views) {
  Table table({"rank", "version", "steps", "last pause", "state"}, {1, 2, 3});
  for (const RankView& view : views) {
    table.add({fmt::format("{}/{}", view.engine, view.rank),
               view.alive && view.version ? std::to_string(*view.version) : "-",
               view.alive ? std::to_string(view.steps) : "-",
               view.alive && view.pause_seconds ? human_seconds(*view.pause_seconds) : "-",
               state_text(view)});
  }
  return table.to_string();
}

}  // namespace changeover::cli

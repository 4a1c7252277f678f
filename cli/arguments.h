// What the command line says, as plain structs. CLI11 is in arguments.cc and nowhere else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <changeover/experts.h>

namespace changeover::cli {

struct PublishArguments {
  std::string model;  // A safetensors file or folder, or file:STREAM (a recording to replay).
  std::string to;
  int64_t version = 0;
  int64_t epoch = 0;
  uint64_t bucket_bytes = 1ull << 30;
  std::string order_file;
  uint32_t ranks = 1;
  double wait_seconds = 60;
  bool digests = true;
  std::string job = "default";
  std::string token_file;
  bool json = false;
};

// How names and shapes of a checkpoint become those of an engine; the same in several commands.
struct PlanArguments {
  EngineShape shape;
  int32_t rank = 0;  // In the engine.
  std::string placement = "contiguous";
  int32_t redundant_experts = 0;
  std::string source_form;
  std::vector<std::string> dtypes;  // "PATTERN=HELD" or "PATTERN=SOURCE:HELD".
  int64_t vocab_multiple = 64;
  std::string model_file;
  std::vector<std::string> drop_segments;
  std::vector<std::string> optional_segments;
  std::vector<std::string> strip_prefixes;
  std::string add_prefix;
};

struct ReceiveArguments {
  std::string model;
  std::string from;
  std::string engine;
  PlanArguments plan;
  std::string mode = "journal";
  int32_t copy_threads = 2;
  std::string admin;
  std::string step_socket;
  double step_interval_ms = 20;
  bool once = false;
  std::string job = "default";
  std::string token_file;
  bool json = false;
};

struct InspectArguments {
  std::string what;  // A safetensors file or folder, or file:STREAM.
  bool json = false;
};

struct ShowPlanArguments {
  std::string model;      // A folder with config.json, or the file itself.
  std::string plan_file;  // A plan as JSON, to be proved; instead of `model`.
  bool list = false;      // The architectures that are built in; instead of both.
  PlanArguments plan;
  bool json = false;
};

struct VerifyArguments {
  std::string model;
  std::string rank;    // The admin endpoint of a running rank, unix:PATH.
  std::string folder;  // Or a checkpoint to compare.
  PlanArguments plan;
  double wait_seconds = 30;
  bool json = false;
};

struct DemoArguments {
  std::string model;
  std::string road = "shm";
  std::string mode = "journal";
  int32_t tp_size = 3;
  uint64_t seed = 1;
  bool json = false;
};

struct BenchArguments {
  std::vector<std::string> figures;  // Empty = all.
  int32_t rounds = 0;                // 0 = each figure's own number.
  bool quick = false;
  bool small = false;
  std::string html;  // A page to write; empty = none.
  bool json = false;
};

using Command = std::variant<PublishArguments, ReceiveArguments, InspectArguments,
                             ShowPlanArguments, VerifyArguments, DemoArguments, BenchArguments>;

// Either a command, or that all is said (help, version, a usage error) and the exit code.
struct Parsed {
  std::optional<Command> command;
  int exit_code = 0;
};
Parsed parse_arguments(int argc, char** argv);

}  // namespace changeover::cli

// The life of an update and of a reload: what begin accepts, what prepare proves, what finish and
// abort leave behind.
#include "update/transaction.h"

#include <string>

#include "base/utf8.h"
#include "update/transaction_impl.h"

namespace changeover::update {

namespace {

std::string stamp_text(VersionStamp stamp) {
  return std::to_string(stamp.version) + " (epoch " + std::to_string(stamp.epoch) + ")";
}

Status check_parameters(const LoadPlan& plan, std::span<const LiveParameter> parameters) {
  if (parameters.size() != plan.parameters.size()) {
    return {Code::kInvalidArgument, std::to_string(parameters.size()) + " live parameters for a " +
                                        "plan of " + std::to_string(plan.parameters.size())};
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].spec != plan.parameters[i]) {
      return {Code::kInvalidArgument, "live parameter " + base::quoted(parameters[i].spec.name) +
                                          " is not the plan's " +
                                          base::quoted(plan.parameters[i].name)};
    }
  }
  return {};
}

Status check_plan(const LoadPlan& plan) {
  if (!plan.derived.empty()) {
    return {Code::kRefused, "the plan derives " + base::quoted(plan.derived[0].output) + " by " +
                                base::quoted(plan.derived[0].op) +
                                ": derived values are not there"};
  }
  return prove_load_plan(plan);
}

}  // namespace

Result<uint64_t> journal_bytes(const LoadPlan& plan) {
  uint64_t total = 0;
  for (const TensorSpec& parameter : plan.parameters) {
    CHANGEOVER_TRY_ASSIGN(const int64_t bytes, byte_count(parameter.dtype, parameter.shape));
    if (__builtin_add_overflow(total, static_cast<uint64_t>(bytes), &total)) {
      return Status(Code::kInvalidArgument, "the parameters' sizes add up to more than 2^64 bytes");
    }
  }
  return total;
}

Result<std::unique_ptr<Transaction>> Transaction::make(const LoadPlan& plan,
                                                       std::span<const LiveParameter> parameters,
                                                       FenceState& fence, FenceRaiser& raiser,
                                                       const TransactionOptions& options) {
  CHANGEOVER_TRY(check_plan(plan));
  CHANGEOVER_TRY(check_parameters(plan, parameters));
  CHANGEOVER_TRY_ASSIGN(const uint64_t journal, journal_bytes(plan));
  if (options.mode == Mode::kJournal && options.journal.size() < journal) {
    return Status(Code::kInvalidArgument, "the journal has " +
                                              std::to_string(options.journal.size()) +
                                              " bytes, this plan needs " + std::to_string(journal));
  }
  if (options.mode == Mode::kStaged || options.mode == Mode::kSwap) {
    CHANGEOVER_TRY(check_parameters(plan, options.second).with_context("the second half"));
  }
  CHANGEOVER_TRY_ASSIGN(model::NameResolver names, model::NameResolver::make(plan));
  CHANGEOVER_TRY_ASSIGN(Applier applier, Applier::make(plan, parameters));
  return std::unique_ptr<Transaction>(std::make_unique<TransactionImpl>(
      plan, parameters, std::move(names), std::move(applier), fence, raiser, options));
}

TransactionImpl::TransactionImpl(const LoadPlan& plan, std::span<const LiveParameter> parameters,
                                 model::NameResolver names, Applier applier, FenceState& fence,
                                 FenceRaiser& raiser, const TransactionOptions& options)
    : options_(options),
      names_(std::move(names)),
      applier_(std::move(applier)),
      landing_(options.mode, applier_, parameters, options.second, options.journal, options.copier),
      ledger_(plan, names_, applier_.piece_bytes()),
      fence_(fence),
      raiser_(raiser) {
  if (landing_.swaps()) {
    fence_.pin_by_version();
  }
  take_sources(plan);
}

void TransactionImpl::take_sources(const LoadPlan& plan) {
  sources_ = plan.sources;
  source_bytes_.clear();
  for (const Source& source : sources_) {
    // The plan is proved: the count does not overflow.
    source_bytes_.push_back(
        static_cast<uint64_t>(*byte_count(source.spec.dtype, source.spec.shape)));
  }
}

BeginOutcome TransactionImpl::begin(VersionStamp version, std::optional<Digest> digest,
                                    bool digests_on) {
  if (is_open()) {
    return {BeginKind::kRefused,
            {Code::kRefused, "the update to version " + stamp_text(target_) + " is still open"}};
  }
  if (reload_open_) {
    return {BeginKind::kRefused, {Code::kRefused, "a reload is open: finish it first"}};
  }
  if (auto why = refusal(version)) {
    return {BeginKind::kRefused, *why};
  }
  if (version == version_) {
    return begin_same(digest, digests_on);
  }
  if (version == newest_ && digest && newest_digest_ && *digest != *newest_digest_) {
    return {BeginKind::kRefused,
            {Code::kRefused, "same version " + stamp_text(version) +
                                 ", other content: this rank held digest " +
                                 newest_digest_->to_text() + ", offered is " + digest->to_text()}};
  }
  if (landing_.swaps()) {
    if (Status status = raiser_.reclaim(landing_.next_half(fence_.half())); !status.ok()) {
      return {BeginKind::kRefused, status};
    }
  }
  start(version);
  expected_digest_ = digest;
  digests_on_ = digests_on;
  state_ = State::kStreaming;
  return {BeginKind::kReady, {}};
}

std::optional<Status> TransactionImpl::refusal(VersionStamp version) const {
  if (version.version < 0 || version.epoch < 0) {
    return Status(Code::kInvalidArgument,
                  "version " + stamp_text(version) + ": version and epoch are not negative");
  }
  if (newest_ && version < *newest_) {
    const bool epoch = version.epoch < newest_->epoch;
    return Status(Code::kRefused, (epoch ? "stale epoch: " : "stale: ") + stamp_text(version) +
                                      " < " + stamp_text(*newest_) +
                                      ", which this rank has committed; going back needs a " +
                                      "higher epoch");
  }
  return std::nullopt;
}

BeginOutcome TransactionImpl::begin_same(const std::optional<Digest>& digest,
                                         bool digests_on) const {
  const std::string what = "version " + stamp_text(*version_) + " is committed here";
  if (!digest) {
    return digests_on && digest_
               ? BeginOutcome{BeginKind::kNeedDigest, {}}
               : BeginOutcome{
                     BeginKind::kRefused,
                     {Code::kRefused, what + " and there is no digest to tell whether it " +
                                          "is the same content: offer a newer version"}};
  }
  if (!digest_) {
    return {BeginKind::kRefused, {Code::kRefused, what + " without a digest: offer a newer one"}};
  }
  if (*digest == *digest_) {
    return {BeginKind::kAlreadyThere, {}};
  }
  return {BeginKind::kRefused,
          {Code::kRefused, "same version, other content: " + what + " with digest " +
                               digest_->to_text() + ", offered is " + digest->to_text()}};
}

void TransactionImpl::start(VersionStamp version) {
  target_ = version;
  version_before_ = version_;
  expected_digest_.reset();
  received_digest_.reset();
  digest_checked_ = raised_ = wrote_ = false;
  bytes_received_ = buckets_ = 0;
  outcome_ = RankOutcome::kFenced;
  error_ = {};
  ledger_.clear();
  landing_.start(fence_.half());
  digester_.clear();
  frame_.clear();
  at_ = 0;
  position_ = 0;
  split_ = {};
  reload_counting_ = false;
}

Status TransactionImpl::fail(Status status) {
  if (error_.ok()) {
    error_ = std::move(status);
  }
  return error_;
}

Status TransactionImpl::raise(FenceReason reason) {
  CHANGEOVER_TRY(raiser_.raise_and_drain(reason, target_));
  raised_ = true;
  return {};
}

Status TransactionImpl::check(std::optional<Digest> source) {
  if (!error_.ok()) {
    return error_;
  }
  if (state_ == State::kChecked) {
    return {};
  }
  if (state_ != State::kEnded) {
    return fail({Code::kInvalidArgument, "prepare before the end of the stream"});
  }
  if (Status status = ledger_.coverage(); !status.ok()) {
    return fail(std::move(status));
  }
  if (Status status = check_digest(source); !status.ok()) {
    return fail(std::move(status));
  }
  if (options_.synchronize) {
    if (Status status = options_.synchronize(); !status.ok()) {
      return fail(std::move(status));
    }
  }
  state_ = State::kChecked;
  return {};
}

Status TransactionImpl::prepare(std::optional<Digest> source) {
  CHANGEOVER_TRY(check(source));
  if (landing_.swaps()) {
    // Nobody is waited for: whoever is inside holds the half that stays as it is.
    fence_.raise_for_unnamed(FenceReason::kPrepared, target_);
  } else if (!raised_) {
    if (Status status = raise(FenceReason::kPrepared); !status.ok()) {
      return fail(std::move(status));
    }
  }
  fence_.set_reason(FenceReason::kPrepared, target_);
  state_ = State::kPrepared;
  return {};
}

Status TransactionImpl::check_digest(const std::optional<Digest>& source) {
  if (!digests_on_) {
    return {};
  }
  received_digest_ = digester_.finish();
  if (!source && !expected_digest_) {
    return {Code::kCorrupt,
            "digests are on, but the publisher sent none for version " + stamp_text(target_)};
  }
  for (const std::optional<Digest>& wanted : {expected_digest_, source}) {
    if (wanted && *wanted != *received_digest_) {
      return {Code::kCorrupt, "version " + stamp_text(target_) + ": digest of what arrived is " +
                                  received_digest_->to_text() + ", the source's " +
                                  wanted->to_text() + ": the source moved, or bytes were damaged"};
    }
  }
  if (target_ == newest_ && newest_digest_ && *newest_digest_ != *received_digest_) {
    return {Code::kRefused, "same version " + stamp_text(target_) + ", other content: this rank " +
                                "held digest " + newest_digest_->to_text() + ", arrived is " +
                                received_digest_->to_text()};
  }
  digest_checked_ = true;
  return {};
}

void TransactionImpl::finish() {
  if (state_ != State::kPrepared) {
    return;
  }
  state_ = State::kIdle;
  outcome_ = RankOutcome::kCommitted;
  resting_ = FenceReason::kNone;
  version_ = newest_ = target_;
  digest_ = newest_digest_ = received_digest_;
  fence_.shut_gate();
  landing_.change_over();
  fence_.publish(target_, landing_.next_half(fence_.half()));
  fence_.lower();
}

void TransactionImpl::abort(const Status& why, bool keep_gate_shut) {
  if (!is_open()) {
    return;
  }
  state_ = State::kIdle;
  (void)fail(why);  // The first failure stands.
  if (keep_gate_shut) {
    fence_.shut_gate();
  }
  if (!landing_.undo(wrote_)) {
    version_.reset();
    digest_.reset();
    rest(FenceReason::kMixed);
    return;
  }
  if (resting_ == FenceReason::kNone) {
    outcome_ = RankOutcome::kRestored;
    fence_.lower();
  } else {
    fence_.set_reason(resting_, resting_about_);
  }
}

void TransactionImpl::rest(FenceReason reason) {
  resting_ = reason;
  resting_about_ = target_;
  fence_.set_reason(reason, target_);
}

Status TransactionImpl::begin_reload(std::optional<VersionStamp> version) {
  if (is_open()) {
    return {Code::kRefused, "the update to version " + stamp_text(target_) + " is open: a reload " +
                                "would be overwritten by it"};
  }
  if (reload_open_) {
    return {Code::kRefused, "another reload is open"};
  }
  if (version) {
    if (auto why = refusal(*version)) {
      return *why;
    }
  }
  const bool goes_on = reload_counting_ && reload_version_ == version;
  if (goes_on) {
    ledger_.next_reload();
  } else {
    start(version.value_or(kVersionUnknown));
    CHANGEOVER_TRY(raise(FenceReason::kReloading));
  }
  error_ = {};
  digests_on_ = false;
  reload_open_ = true;
  reload_counting_ = true;
  reload_wrote_ = false;
  reload_version_ = version;
  version_.reset();
  digest_.reset();
  rest(FenceReason::kReloading);
  return {};
}

Status TransactionImpl::finish_reload() {
  if (!reload_open_) {
    return {Code::kInvalidArgument, "no reload is open"};
  }
  reload_open_ = false;
  if (!error_.ok()) {
    return error_;
  }
  if (!reload_wrote_) {
    return {Code::kRefused, "the reload matched nothing: the fence stays up"};
  }
  if (Status status = ledger_.coverage(); !status.ok()) {
    return {Code::kRefused, status.message() + "; the fence stays up"};
  }
  reload_counting_ = false;
  version_ = reload_version_;
  newest_ = version_ ? version_ : newest_;
  newest_digest_ = version_ ? std::nullopt : newest_digest_;
  resting_ = FenceReason::kNone;
  fence_.shut_gate();
  landing_.change_over();
  fence_.publish(target_, landing_.next_half(fence_.half()));
  fence_.lower();
  return {};
}

// Everything that is made of a plan is made anew.
Status TransactionImpl::replan(const LoadPlan& plan, std::span<const LiveParameter> parameters) {
  if (is_open() || reload_open_) {
    return {Code::kRefused, is_open() ? "an update is open: the plan changes when it has ended"
                                      : "a reload is open: the plan changes when it has ended"};
  }
  CHANGEOVER_TRY(check_plan(plan));
  CHANGEOVER_TRY(check_parameters(plan, parameters));
  CHANGEOVER_TRY_ASSIGN(model::NameResolver names, model::NameResolver::make(plan));
  CHANGEOVER_TRY_ASSIGN(Applier applier, Applier::make(plan, parameters));
  names_ = std::move(names);
  applier_ = std::move(applier);
  landing_.replan();
  ledger_ = Ledger(plan, names_, applier_.piece_bytes());
  take_sources(plan);
  reload_counting_ = false;
  return {};
}

RankReport TransactionImpl::report() const {
  RankReport report;
  report.rank = options_.rank;
  report.incarnation = options_.incarnation;
  report.outcome = state_ == State::kPrepared ? RankOutcome::kInDoubt : outcome_;
  report.version_before = version_before_;
  report.version = version_;
  report.digest = digest_;
  report.digest_checked = digest_checked_;
  report.mode = options_.mode;
  report.way = "stream";
  report.pieces_expected = ledger_.pieces_expected();
  report.pieces_landed = ledger_.pieces_landed();
  report.bytes_received = bytes_received_;
  report.mode_memory_bytes = landing_.memory_bytes();
  report.bytes_written = ledger_.bytes_landed();
  report.buckets = buckets_;
  report.fenced = fence_.up();
  report.error = error_;
  return report;
}

}  // namespace changeover::update

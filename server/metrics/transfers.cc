// Prefixes between instances: those that this one asked for, and those that it was asked for.
#include "server/metrics/parts.h"

namespace invar::server {

MetricsPart TransferMetrics() {
  using S = MetricsSnapshot;
  return {
      .title = "Prefixes between instances",
      .rows = {
          {"invar_transfer_begun_total", kCounter, "Prefixes this instance asked others for.",
           [](const S& s) { return s.engine.transfer.begun; }},
          {"invar_transfer_landed_total", kCounter, "Of these, those that came and were taken up.",
           [](const S& s) { return s.engine.transfer.landed; }},
          {"invar_transfer_cancelled_total", kCounter, "Of these, those whose request ended first.",
           [](const S& s) { return s.engine.transfer.cancelled; }},
          {"invar_transfer_under_way", kGauge, "Of these, those that requests wait for.",
           [](const S& s) { return s.engine.transfer.under_way; }},
          {"invar_transfer_tokens_total", kCounter, "Prompt tokens that were not run here because of them.",
           [](const S& s) { return s.engine.transfer.tokens; }},
          {"invar_transfer_received_bytes_total", kCounter, "Payload of prefixes that came here, used or not.",
           [](const S& s) { return s.engine.transfer.bytes; }},
          {"invar_transfer_wait_seconds_total", kCounter,
           "Time that requests waited for prefixes, those in vain included.",
           [](const S& s) { return ToSeconds(s.engine.transfer.wait_ns); }},
          {"invar_transfer_coded_landed_total", kCounter,
           "Of those that landed, those of other weights, in codes: answers on them are approximate.",
           [](const S& s) { return s.engine.transfer.coded_landed; }},
          {"invar_transfer_coded_tokens_total", kCounter, "Prompt tokens that were not run here because of them.",
           [](const S& s) { return s.engine.transfer.coded_tokens; }},
          {"invar_transfer_coded_bytes_total", kCounter, "Payload of them.",
           [](const S& s) { return s.engine.transfer.coded_bytes; }},
          {"invar_transfer_rebuild_seconds_total", kCounter, "Time of the engine that making prefixes of codes took.",
           [](const S& s) { return ToSeconds(s.engine.transfer.rebuild_ns); }},
          {"invar_transfer_aborts_answered_total", kCounter,
           "Of prefixes this instance asked others for, those that it gave up and whose producer confirmed that it has "
           "let go.",
           [](const S& s) { return s.aborts.answered; }},
          {"invar_transfer_aborts_unanswered_total", kCounter,
           "Alike, those whose producer did not confirm it in time, and was cut.",
           [](const S& s) { return s.aborts.unanswered; }},
          {"invar_transfer_asked_total", kCounter, "Prefixes that others asked this instance for.",
           [](const S& s) { return s.transfer.asked; }},
          {"invar_transfer_sent_total", kCounter, "Of these, those that their consumer confirmed.",
           [](const S& s) { return s.transfer.sent; }},
          {"invar_transfer_refused_total", kCounter,
           "Of these, those refused: another model or version, no right to it, no room, or not serving.",
           [](const S& s) { return s.transfer.refused; }},
          {"invar_transfer_failed_total", kCounter, "Of these, those that could not be computed.",
           [](const S& s) { return s.transfer.failed; }},
          {"invar_transfer_aborted_total",
           kCounter,
           {AxisOf<engine::AbortReason>("reason", engine::kAbortReasons,
                                        [](const engine::AbortReason reason) { return engine::NameOf(reason); })},
           "Of these, those whose consumer gave up and said so, by reason: what was held for it was free before it was "
           "answered.",
           [](const S& s, const size_t i) { return s.transfer.aborted[i]; }},
          {"invar_transfer_abandoned_total", kCounter,
           "Of these, those whose consumer went away without a word or did not keep to the protocol.",
           [](const S& s) { return s.transfer.abandoned; }},
          {"invar_transfer_expired_total", kCounter,
           "Of these, those whose consumer was silent for transfer.lease, or took nothing for "
           "limits.slow_reader_timeout: what was held for it is free again.",
           [](const S& s) { return s.transfer.expired; }},
          {"invar_transfer_sent_bytes_total", kCounter, "Payload of prefixes that went out.",
           [](const S& s) { return s.transfer.bytes; }},
          {"invar_transfer_codes_kept_bytes", kGauge, "Codes that went out and are kept, of transfer.codes_kept.",
           [](const S& s) { return s.transfer.codes_kept_bytes; }},
          {"invar_transfer_held_bytes", kGauge, "Copies of prefixes on their way out, of transfer.bytes_max.",
           [](const S& s) { return s.transfer.held_bytes; }},
          {"invar_transfer_fallbacks_total",
           kCounter,
           {AxisOf<engine::TransferFault>("reason", engine::kTransferFaults,
                                          [](const engine::TransferFault fault) { return engine::NameOf(fault); })},
           "Prefixes that did not come, and were run here, by reason (docs/TRANSFER.md); silent: the producer's lease "
           "ended; damaged: a checksum was wrong.",
           [](const S& s, const size_t i) { return s.engine.transfer.faults[i]; }},
      }};
}

}  // namespace invar::server

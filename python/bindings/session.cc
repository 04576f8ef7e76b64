#include "session/session.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "transport/shm/shm_transport.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace headrace {
namespace {

using ReleaseGil = nb::call_guard<nb::gil_scoped_release>;

Milliseconds from_seconds(double seconds) {
  return std::chrono::duration_cast<Milliseconds>(std::chrono::duration<double>(seconds));
}
double to_seconds(Milliseconds time) { return std::chrono::duration<double>(time).count(); }

// Lets Ctrl-C end a wait: the handler's exception stays set for the translator to leave alone.
bool signal_raised() {
  const nb::gil_scoped_acquire gil;
  return PyErr_CheckSignals() != 0;
}

Exchange wrap(nb::callable exchange) {
  return [exchange = std::move(exchange)](const std::string& mine,
                                          Milliseconds limit) -> Result<std::vector<std::string>> {
    const nb::gil_scoped_acquire gil;
    std::vector<std::string> blobs;
    for (nb::handle blob : exchange(nb::bytes(mine.data(), mine.size()), to_seconds(limit))) {
      const auto bytes = nb::cast<nb::bytes>(blob);
      blobs.emplace_back(bytes.c_str(), bytes.size());
    }
    return blobs;
  };
}

Session* connect(const SessionConfig& config, std::vector<GroupSpec> groups,
                 nb::callable exchange) {
  SessionConfig interruptible = config;
  interruptible.interrupted = &signal_raised;
  const Exchange wrapped = wrap(std::move(exchange));
  const nb::gil_scoped_release release;
  return unwrap(Session::connect(interruptible, ModelSpec{.groups = std::move(groups)},
                                 [&wrapped](const TransportConfig& transport) {
                                   return make_shm_transport(transport, wrapped);
                                 }))
      .release();
}

void bind_specs(nb::module_& module) {
  nb::enum_<DType>(module, "DType")
      .value("float32", DType::float32)
      .value("bfloat16", DType::bfloat16);
  nb::enum_<BracketKind>(module, "BracketKind")
      .value("minibatch", BracketKind::minibatch)
      .value("evaluation", BracketKind::evaluation);
  nb::enum_<Accumulation>(module, "Accumulation")
      .value("arrival", Accumulation::arrival)
      .value("reproducible", Accumulation::reproducible);
  nb::class_<ParameterSpec>(module, "ParameterSpec")
      .def(
          "__init__",
          [](ParameterSpec* self, std::string name, std::int64_t rows, std::int64_t row_elements,
             DType dtype) { new (self) ParameterSpec{std::move(name), rows, row_elements, dtype}; },
          "name"_a, "rows"_a, "row_elements"_a, "dtype"_a)
      .def_rw("name", &ParameterSpec::name)
      .def_rw("rows", &ParameterSpec::rows)
      .def_rw("row_elements", &ParameterSpec::row_elements)
      .def_rw("dtype", &ParameterSpec::dtype);
  nb::class_<GroupSpec>(module, "GroupSpec")
      .def(
          "__init__",
          [](GroupSpec* self, std::string name, std::vector<ParameterSpec> parameters) {
            new (self) GroupSpec{std::move(name), std::move(parameters)};
          },
          "name"_a, "parameters"_a)
      .def_rw("name", &GroupSpec::name)
      .def_rw("parameters", &GroupSpec::parameters);
  nb::class_<ShardSource>(module, "ShardSource")
      .def(
          "__init__",
          [](ShardSource* self, std::uintptr_t address, DType dtype) {
            new (self) ShardSource{reinterpret_cast<const void*>(address), dtype};
          },
          "address"_a, "dtype"_a);
  nb::class_<GradientSource>(module, "GradientSource")
      .def(
          "__init__",
          [](GradientSource* self, std::size_t parameter, std::uintptr_t address, DType dtype) {
            new (self) GradientSource{parameter, reinterpret_cast<const void*>(address), dtype};
          },
          "parameter"_a, "address"_a, "dtype"_a);
}

void bind_config(nb::module_& module) {
  const auto seconds = [](auto member) {
    return std::pair{
        [member](const SessionConfig& config) { return to_seconds(member(config)); },
        [member](SessionConfig& config, double value) { member(config) = from_seconds(value); }};
  };
  const auto silence = seconds([](auto& config) -> auto& { return config.liveness.silence; });
  const auto progress = seconds([](auto& config) -> auto& { return config.wait.no_progress; });
  const auto bootstrap = seconds([](auto& config) -> auto& { return config.bootstrap; });
  nb::enum_<SessionMode>(module, "Mode")
      .value("on_demand", SessionMode::on_demand)
      .value("lockstep", SessionMode::lockstep)
      .value("both", SessionMode::both);
  nb::class_<SessionConfig>(module, "SessionConfig")
      .def(
          "__init__",
          [](SessionConfig* self, int rank, int world_size) {
            new (self) SessionConfig{};
            self->rank = rank;
            self->world_size = world_size;
          },
          "rank"_a, "world_size"_a)
      .def_rw("rank", &SessionConfig::rank)
      .def_rw("world_size", &SessionConfig::world_size)
      .def_rw("fingerprint", &SessionConfig::fingerprint)
      .def_rw("chunk_bytes", &SessionConfig::chunk_bytes)
      .def_rw("mode", &SessionConfig::mode)
      .def_rw("local_ranks", &SessionConfig::local_ranks)
      .def_prop_rw(
          "adopted", [](const SessionConfig& config) { return config.lockstep.adopted; },
          [](SessionConfig& config, std::vector<bool> adopted) {
            config.lockstep.adopted = std::move(adopted);
          })
      .def_prop_rw(
          "slot_reuse",
          [](const SessionConfig& config) {
            return config.lockstep.reduce_scatter.mode == GradientMode::slot_reuse;
          },
          [](SessionConfig& config, bool slot_reuse) {
            config.lockstep.reduce_scatter.mode =
                slot_reuse ? GradientMode::slot_reuse : GradientMode::in_place;
          })
      .def_rw("accumulate", &SessionConfig::accumulate)
      .def_rw("worker_threads", &SessionConfig::worker_threads)
      .def_rw("trace_events", &SessionConfig::trace_events)
      .def_prop_rw("silence_seconds", silence.first, silence.second)
      .def_prop_rw("no_progress_seconds", progress.first, progress.second)
      .def_prop_rw("bootstrap_seconds", bootstrap.first, bootstrap.second);
}

void bind_reports(nb::module_& module) {
  nb::class_<TraceEvent>(module, "TraceEvent")
      .def_ro("name", &TraceEvent::name)
      .def_ro("thread", &TraceEvent::thread)
      .def_ro("group", &TraceEvent::group)
      .def_ro("begin_ns", &TraceEvent::begin_ns)
      .def_ro("end_ns", &TraceEvent::end_ns)
      .def_ro("waited_ns", &TraceEvent::waited_ns)
      .def_ro("bytes", &TraceEvent::bytes);
  nb::class_<Counters>(module, "Counters")
      .def_ro("publish_bytes", &Counters::publish_bytes)
      .def_ro("gather_bytes", &Counters::gather_bytes)
      .def_ro("push_bytes", &Counters::push_bytes)
      .def_ro("gathers", &Counters::gathers)
      .def_ro("pushes", &Counters::pushes)
      .def_ro("wait_ns", &Counters::wait_ns)
      .def_ro("worker_ns", &Counters::worker_ns)
      .def_ro("hidden_ns", &Counters::hidden_ns)
      .def_ro("arena_bytes", &Counters::arena_bytes)
      .def_ro("trace_dropped", &Counters::trace_dropped);
}

// touched[group][parameter], from the mask over all parameters.
std::vector<std::vector<bool>> touched_by_group(const Session& session,
                                                const Settlement& settlement) {
  std::vector<std::vector<bool>> touched;
  for (std::size_t group = 0; group < session.plan().groups(); ++group) {
    std::vector<bool>& flags = touched.emplace_back();
    for (std::size_t p = 0; p < session.plan().map(group).parameters(); ++p) {
      flags.push_back(session.plan().touches(settlement.touched, group, p));
    }
  }
  return touched;
}

std::vector<void*> addresses(const std::vector<std::uintptr_t>& integers) {
  std::vector<void*> result;
  result.reserve(integers.size());
  for (const std::uintptr_t integer : integers) {
    result.push_back(reinterpret_cast<void*>(integer));
  }
  return result;
}

using Bytes = nb::ndarray<std::uint8_t, nb::ndim<1>, nb::device::cpu>;

// The arena stays mapped for as long as any of the arrays lives.
std::vector<Bytes> resident(Session& session, std::size_t group) {
  std::vector<Bytes> blocks;
  const AddressMap& map = session.plan().map(group);
  for (std::size_t p = 0; p < map.parameters(); ++p) {
    std::byte* block = unwrap(session.resident(group, p));
    auto owner = std::make_unique<std::shared_ptr<const void>>(session.memory_owner());
    const nb::capsule capsule(owner.get(), [](void* held) noexcept {
      delete static_cast<std::shared_ptr<const void>*>(held);
    });
    static_cast<void>(owner.release());
    blocks.emplace_back(block, std::initializer_list<std::size_t>{map.block_bytes(p)}, capsule);
  }
  return blocks;
}

// Elements from the start of a reduce-scatter's output to each parameter's rows.
std::vector<std::size_t> packed_offsets(const Session& session, std::size_t group) {
  std::vector<std::size_t> offsets;
  const AddressMap& map = session.plan().map(group);
  for (std::size_t p = 0; p < map.parameters(); ++p) {
    offsets.push_back(map.accumulator_offset(p) / sizeof(float));
  }
  return offsets;
}

struct PythonSettlement {
  double loss_sum;
  double weight;
  std::uint64_t flags;
  std::vector<std::vector<bool>> touched;
};

void bind_class(nb::module_& module) {
  nb::class_<PythonSettlement>(module, "Settlement")
      .def_ro("loss_sum", &PythonSettlement::loss_sum)
      .def_ro("weight", &PythonSettlement::weight)
      .def_ro("flags", &PythonSettlement::flags)
      .def_ro("touched", &PythonSettlement::touched);
  nb::class_<Session>(module, "Session")
      .def_static("connect", &connect, "config"_a, "groups"_a, "exchange"_a,
                  nb::rv_policy::take_ownership)
      .def(
          "open",
          [](Session& session, BracketKind kind,
             const std::vector<std::vector<ShardSource>>& sources, double weight,
             std::uint64_t plan,
             bool in_step) { return unwrap(session.open(kind, weight, plan, sources, in_step)); },
          "kind"_a, "sources"_a, "weight"_a = 0.0, "plan"_a = 0, "in_step"_a = false, ReleaseGil())
      .def(
          "start_gather",
          [](Session& session, std::size_t group, const std::vector<std::uintptr_t>& landings) {
            unwrap(session.start_gather(group, addresses(landings)));
          },
          "group"_a, "landings"_a, ReleaseGil())
      .def(
          "start_all_gather",
          [](Session& session, std::size_t group, const std::vector<ShardSource>& shards,
             const std::vector<std::uintptr_t>& landings) {
            unwrap(session.start_all_gather(group, shards, addresses(landings)));
          },
          "group"_a, "shards"_a, "landings"_a, ReleaseGil())
      .def(
          "wait_gather",
          [](Session& session, std::size_t group) { unwrap(session.wait_gather(group)); },
          "group"_a, ReleaseGil())
      .def(
          "start_reduce_scatter",
          [](Session& session, std::size_t group, const std::vector<GradientSource>& gradients,
             std::uintptr_t output, float alpha, bool accumulate, bool earlier) {
            return unwrap(session.start_reduce_scatter(
                group, gradients, reinterpret_cast<float*>(output), alpha, accumulate, earlier));
          },
          "group"_a, "gradients"_a, "output"_a, "alpha"_a, "accumulate"_a = false,
          "earlier"_a = false, ReleaseGil())
      .def("resident", &resident, "group"_a)
      .def("packed_offsets", &packed_offsets, "group"_a)
      .def(
          "packed_elements",
          [](const Session& session, std::size_t group) {
            return session.plan().map(group).accumulator_bytes() / sizeof(float);
          },
          "group"_a)
      .def(
          "push",
          [](Session& session, std::size_t group, const std::vector<GradientSource>& gradients) {
            return unwrap(session.push(group, gradients));
          },
          "group"_a, "gradients"_a, ReleaseGil())
      .def("pushed", &Session::pushed)
      .def(
          "wait_pushed",
          [](Session& session, std::uint64_t ticket) { unwrap(session.wait_pushed(ticket)); },
          "ticket"_a, ReleaseGil())
      .def(
          "finish",
          [](Session& session, double loss_sum, double weight, std::uint64_t flags) {
            unwrap(session.finish(loss_sum, weight, flags));
          },
          "loss_sum"_a = 0.0, "weight"_a = 0.0, "flags"_a = 0, ReleaseGil())
      .def(
          "settle",
          [](Session& session) {
            const Settlement settlement = unwrap(session.settle());
            return PythonSettlement{settlement.loss_sum, settlement.weight, settlement.flags,
                                    touched_by_group(session, settlement)};
          },
          ReleaseGil())
      .def(
          "collect",
          [](Session& session, std::size_t group, std::size_t parameter, std::uintptr_t address,
             DType dtype, float scale, bool add) {
            unwrap(session.collect(group, parameter, reinterpret_cast<void*>(address), dtype, scale,
                                   add));
          },
          "group"_a, "parameter"_a, "address"_a, "dtype"_a, "scale"_a, "add"_a, ReleaseGil())
      .def("fail", &Session::fail, "reason"_a, ReleaseGil())
      .def("check", [](const Session& session) { unwrap(session.check()); })
      .def("close", &Session::close, ReleaseGil())
      .def("drain_trace", &Session::drain_trace)
      .def("counters", &Session::counters)
      .def_prop_ro("rank", &Session::rank)
      .def_prop_ro("world_size", &Session::world_size)
      .def_prop_ro("accumulation",
                   [](const Session& session) { return session.plan().accumulation(); })
      .def_prop_ro("epoch", &Session::epoch)
      .def_prop_ro("in_bracket", &Session::in_bracket);
}

}  // namespace

void bind_session(nb::module_& module) {
  bind_specs(module);
  bind_config(module);
  bind_reports(module);
  bind_class(module);
}

}  // namespace headrace

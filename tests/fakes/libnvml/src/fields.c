/* nvmlDeviceGetFieldValues: what the GPU's own numbers answer, unless the test dictates a field. */
#include "fake.h"

#include <limits.h>
#include <stddef.h>
#include <stdio.h>

struct reading {
    int64_t value;
    nvmlValueType_t type;
};
#define UINT(x) (struct reading){(x), NVML_VALUE_TYPE_UNSIGNED_INT}
#define SINT(x) (struct reading){(x), NVML_VALUE_TYPE_SIGNED_INT}
#define ULL(x) (struct reading){(x), NVML_VALUE_TYPE_UNSIGNED_LONG_LONG}

/* Sums one number of the links; scope picks a link, UINT_MAX all of them. */
#define LINKS(member) links(gpu, scope, offsetof(struct link, member))
static int64_t links(const struct gpu *gpu, unsigned int scope, size_t member) {
    int64_t total = ABSENT;
    for (int64_t i = 0; i < gpu->nvlinks; i++) {
        int64_t value = *(const int64_t *)((const char *)&gpu->links[i] + member);
        bool meant = scope == i || scope == UINT_MAX;
        if (meant && value != ABSENT) total = (total == ABSENT ? 0 : total) + value;
    }
    return total;
}

/* FIRST_L0..L5, its total and FIRST_L6..L11 of the per-link fields of older NVLink generations. */
#define PER_LINK(name) NVML_FI_DEV_NVLINK_##name##_L0 ... NVML_FI_DEV_NVLINK_##name##_L5
#define PER_LINK_MORE(name) NVML_FI_DEV_NVLINK_##name##_L6 ... NVML_FI_DEV_NVLINK_##name##_L11
#define ERRORS(name, index)                                                                                    \
    case PER_LINK(name): return scope = id - NVML_FI_DEV_NVLINK_##name##_L0, ULL(LINKS(errors[index]));         \
    case PER_LINK_MORE(name): return scope = id - NVML_FI_DEV_NVLINK_##name##_L6 + 6, ULL(LINKS(errors[index])); \
    case NVML_FI_DEV_NVLINK_##name##_TOTAL: return scope = UINT_MAX, ULL(LINKS(errors[index]));

static struct reading read_field(const struct gpu *gpu, unsigned int id, unsigned int scope) {
    switch (id) {
    case NVML_FI_DEV_ECC_CURRENT: return UINT(gpu->ecc_mode);
    case NVML_FI_DEV_ECC_PENDING: return UINT(gpu->ecc_pending);
    case NVML_FI_DEV_ECC_SBE_VOL_TOTAL: return ULL(fake_ecc_total(gpu, 0, 0));
    case NVML_FI_DEV_ECC_DBE_VOL_TOTAL: return ULL(fake_ecc_total(gpu, 0, 1));
    case NVML_FI_DEV_ECC_SBE_AGG_TOTAL: return ULL(fake_ecc_total(gpu, 1, 0));
    case NVML_FI_DEV_ECC_DBE_AGG_TOTAL: return ULL(fake_ecc_total(gpu, 1, 1));
    case NVML_FI_DEV_ECC_SBE_VOL_DEV: return ULL(gpu->ecc[0][0][NVML_MEMORY_LOCATION_DRAM]);
    case NVML_FI_DEV_ECC_DBE_VOL_DEV: return ULL(gpu->ecc[0][1][NVML_MEMORY_LOCATION_DRAM]);
    case NVML_FI_DEV_ECC_SBE_AGG_DEV: return ULL(gpu->ecc[1][0][NVML_MEMORY_LOCATION_DRAM]);
    case NVML_FI_DEV_ECC_DBE_AGG_DEV: return ULL(gpu->ecc[1][1][NVML_MEMORY_LOCATION_DRAM]);
    case NVML_FI_DEV_RETIRED_SBE: return ULL(gpu->retired_sbe);
    case NVML_FI_DEV_RETIRED_DBE: return ULL(gpu->retired_dbe);
    case NVML_FI_DEV_RETIRED_PENDING: return ULL(gpu->retired_pending);
    case NVML_FI_DEV_REMAPPED_COR: return UINT(gpu->remapped_correctable);
    case NVML_FI_DEV_REMAPPED_UNC: return UINT(gpu->remapped_uncorrectable);
    case NVML_FI_DEV_REMAPPED_PENDING: return UINT(gpu->remap_pending);
    case NVML_FI_DEV_REMAPPED_FAILURE: return UINT(gpu->remap_failure);
    case NVML_FI_DEV_GET_GPU_RECOVERY_ACTION: return UINT(gpu->recovery_action);
    case NVML_FI_DEV_RESET_STATUS: return UINT(gpu->reset_status);
    case NVML_FI_DEV_DRAIN_AND_RESET_STATUS: return UINT(gpu->drain_and_reset_status);
    case NVML_FI_PWR_SMOOTHING_ENABLED ... NVML_FI_PWR_SMOOTHING_ADMIN_OVERRIDE_RAMP_DOWN_HYST_VAL:
        return UINT(gpu->smoothing_profile);
    ERRORS(REPLAY_ERROR_COUNT, 0)
    ERRORS(RECOVERY_ERROR_COUNT, 1)
    ERRORS(CRC_FLIT_ERROR_COUNT, 2)
    ERRORS(CRC_DATA_ERROR_COUNT, 3)
    case NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY: return ULL(LINKS(errors[0]));
    case NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY: return ULL(LINKS(errors[1]));
    case NVML_FI_DEV_NVLINK_ERROR_DL_CRC: return ULL(LINKS(errors[2]));
    case NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX:
    case NVML_FI_DEV_NVLINK_THROUGHPUT_RAW_TX: return ULL(LINKS(tx_kib));
    case NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX:
    case NVML_FI_DEV_NVLINK_THROUGHPUT_RAW_RX: return ULL(LINKS(rx_kib));
    case NVML_FI_DEV_NVLINK_GET_STATE: return UINT(LINKS(active));
    case NVML_FI_DEV_NVLINK_GET_VERSION: return UINT(gpu->nvlink_version);
    case NVML_FI_DEV_NVLINK_GET_SPEED:
    case NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON: return UINT(gpu->nvlink_speed_mbps);
    case NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_BER: return UINT(gpu->nvlink_effective_ber);
    case NVML_FI_DEV_NVLINK_COUNT_SYMBOL_BER: return UINT(gpu->nvlink_symbol_ber);
    case NVML_FI_DEV_NVLINK_COUNT_FEC_HISTORY_0 ... NVML_FI_DEV_NVLINK_COUNT_FEC_HISTORY_15:
        if (gpu->nvlink_fec_blocks == ABSENT) return ULL(ABSENT);
        return ULL(gpu->nvlink_fec_blocks >> (id - NVML_FI_DEV_NVLINK_COUNT_FEC_HISTORY_0));
    case NVML_FI_DEV_C2C_LINK_COUNT: return UINT(gpu->c2c_links);
    case NVML_FI_DEV_C2C_LINK_GET_MAX_BW: return UINT(gpu->c2c_mbps);
    case NVML_FI_DEV_NVLINK_LINK_COUNT: return UINT(gpu->nvlinks);
    case NVML_FI_DEV_PERF_POLICY_POWER: return ULL(gpu->event_ns[NVML_PERF_POLICY_POWER]);
    case NVML_FI_DEV_PERF_POLICY_THERMAL: return ULL(gpu->event_ns[NVML_PERF_POLICY_THERMAL]);
    case NVML_FI_DEV_PERF_POLICY_SYNC_BOOST: return ULL(gpu->event_ns[NVML_PERF_POLICY_SYNC_BOOST]);
    case NVML_FI_DEV_PERF_POLICY_BOARD_LIMIT: return ULL(gpu->event_ns[NVML_PERF_POLICY_BOARD_LIMIT]);
    case NVML_FI_DEV_PERF_POLICY_LOW_UTILIZATION: return ULL(gpu->event_ns[NVML_PERF_POLICY_LOW_UTILIZATION]);
    case NVML_FI_DEV_PERF_POLICY_RELIABILITY: return ULL(gpu->event_ns[NVML_PERF_POLICY_RELIABILITY]);
    /* policies 6 to 9 do not exist: their places hold the reasons that are none */
    case NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN: return ULL(gpu->event_ns[6]);
    case NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN: return ULL(gpu->event_ns[7]);
    case NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN: return ULL(gpu->event_ns[8]);
    case NVML_FI_DEV_MEMORY_TEMP: return UINT(gpu->memory_temperature);
    case NVML_FI_DEV_GPU_TEMP: return SINT(gpu->temperature);
    case NVML_FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT: return SINT(gpu->shutdown_tlimit);
    case NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT: return SINT(gpu->slowdown_tlimit);
    case NVML_FI_DEV_TEMPERATURE_MEM_MAX_TLIMIT: return SINT(gpu->memory_max_tlimit);
    case NVML_FI_DEV_TEMPERATURE_GPU_MAX_TLIMIT: return SINT(gpu->gpu_max_tlimit);
    case NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION:
    case NVML_FI_DEV_ENERGY: return ULL(fake_energy_mj(gpu));
    case NVML_FI_DEV_POWER_AVERAGE: /* scope: 0 GPU, 1 module, 2 memory */
        return UINT(scope == NVML_POWER_SCOPE_GPU ? gpu->power_average_mw
                    : scope == NVML_POWER_SCOPE_MEMORY ? gpu->memory_power_mw : ABSENT);
    case NVML_FI_DEV_POWER_INSTANT: return UINT(scope == NVML_POWER_SCOPE_GPU ? gpu->power_mw : ABSENT);
    case NVML_FI_DEV_POWER_MIN_LIMIT: return UINT(scope ? ABSENT : gpu->power_limit_min_mw);
    case NVML_FI_DEV_POWER_MAX_LIMIT: return UINT(scope ? ABSENT : gpu->power_limit_max_mw);
    case NVML_FI_DEV_POWER_DEFAULT_LIMIT: return UINT(scope ? ABSENT : gpu->power_limit_default_mw);
    case NVML_FI_DEV_POWER_CURRENT_LIMIT: return UINT(scope ? ABSENT : gpu->power_limit_enforced_mw);
    case NVML_FI_DEV_POWER_REQUESTED_LIMIT: return UINT(scope ? ABSENT : gpu->power_limit_mw);
    case NVML_FI_DEV_PCIE_REPLAY_COUNTER: return UINT(gpu->pcie_replays);
    case NVML_FI_DEV_PCIE_REPLAY_ROLLOVER_COUNTER: return UINT(gpu->pcie_replays == ABSENT ? ABSENT : 0);
    default: return UINT(ABSENT);
    }
}

/* The present header's number of what the driver means by a number, 0 for one that it does not know. */
static unsigned int present_number(unsigned int id) {
    /* the first number that a driver no longer knows: NVML_FI_MAX of its header */
    static const struct { unsigned int branch, end; } known[] = {{535, 197}, {550, 228}, {570, 269}, {580, 274}};
    unsigned int branch = 0, release = 0;
    sscanf(control->driver_version, "%u.%u", &branch, &release);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (branch > known[i].branch) continue;
        if (id >= known[i].end) return 0;
        break;
    }
    bool older = branch == 575 || (branch == 580 && release < 82);
    if (!older) return id;
    if (id >= 251 && id < 256) return id + 18; /* clock event reasons, power balancing: later 269 to 273 */
    if (id >= 256 && id < 274) return id - 5;  /* power smoothing: before and afterwards 251 to 268 */
    return id;
}

static void answer(const struct gpu *gpu, nvmlFieldValue_t *out) {
    out->timestamp = fake_unix_us(), out->latencyUsec = 0;
    const struct field *dictated = out->fieldId < MAX_FIELDS ? &gpu->fields[out->fieldId] : NULL;
    struct reading reading = {ABSENT, NVML_VALUE_TYPE_UNSIGNED_INT};
    if (dictated && dictated->set) {
        double seconds = (fake_monotonic_ns() - dictated->since_ns) / 1e9;
        reading = (struct reading){dictated->value + (int64_t)(dictated->rate * seconds), dictated->type};
        out->nvmlReturn = dictated->result;
    } else {
        reading = read_field(gpu, present_number(out->fieldId), out->scopeId);
        out->nvmlReturn = reading.value == ABSENT ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
    }
    out->valueType = reading.type;
    out->value.ullVal = 0;
    if (out->nvmlReturn != NVML_SUCCESS) return;
    if (reading.type == NVML_VALUE_TYPE_DOUBLE) out->value.dVal = reading.value;
    else out->value.sllVal = reading.value; /* little endian: the narrower members read the same bytes */
}

DEVICE(nvmlDeviceGetFieldValues, int count, nvmlFieldValue_t *values) {
    REQUIRE(count > 0 && values, INVALID_ARGUMENT);
    for (int i = 0; i < count; i++) {
        if (device->mig < 0) answer(gpu_of(device), &values[i]);
        else values[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
    }
    return NVML_SUCCESS;
}

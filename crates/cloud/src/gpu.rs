//! GPUs of a node: which machine has them, what they cost beside it, and how fast they are beside those that were measured.
//!
//! A rate that was measured on cores says nothing of a GPU, so that GPUs make nothing faster then: they are in the cost and the
//! quota alone. A rate that was measured on a GPU is that GPU's; of another one it is only known that its arithmetic and its memory
//! are so many times as fast, and a program is bound by one of them. The plan expects the middle and widens its interval by both.

use crate::catalogue::{CloudCatalogue, GpuType, MachineType};
use crate::error::CloudError;
use crate::job::Job;
use serde::Serialize;

/// A machine type with the GPUs it would have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct NodeType<'a> {
    pub machine: &'a MachineType,
    pub gpus: Option<NodeGpus<'a>>,
}

/// GPUs of one node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct NodeGpus<'a> {
    pub name: &'a str,
    pub count: u32,
    /// Dollars of all of them for an hour, beside the machine's; `None` where the catalogue has no price.
    pub usd_per_hour: Option<f64>,
    /// Whether the machine is only rented with them.
    pub built_in: bool,
}

/// How many times as fast as the GPU that was measured: by its slower, in the middle, by its faster side.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct GpuSpeed {
    pub low: f64,
    pub expected: f64,
    pub high: f64,
}

impl GpuSpeed {
    /// The very GPU that was measured.
    pub(crate) const SAME: Self = Self { low: 1.0, expected: 1.0, high: 1.0 };

    /// Of one GPU beside another, by the figures that are known of both; `None` where there are not at least two.
    fn between(gpu: &GpuType, measured: &GpuType) -> Option<Self> {
        let figures = |gpu: &GpuType| [gpu.fp32_tflops, gpu.mixed_tflops, gpu.memory_gb_per_s];
        let pairs = figures(gpu).into_iter().zip(figures(measured));
        let ratios: Vec<f64> = pairs.filter_map(|(gpu, measured)| Some(gpu? / measured?)).collect();
        let low = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let high = ratios.iter().copied().fold(0.0, f64::max);
        (ratios.len() > 1).then(|| Self { low, expected: (low * high).sqrt(), high })
    }
}

/// All machine types that could be a node of the job, with their GPUs.
pub(crate) fn node_types<'a>(
    job: &'a Job,
    catalogue: &'a CloudCatalogue,
) -> Result<Vec<NodeType<'a>>, CloudError> {
    let named = &job.shape.machines;
    let machines: Vec<&MachineType> = if named.is_empty() {
        catalogue.machines.iter().collect()
    } else {
        named.iter().map(|name| catalogue.machine(name)).collect::<Result<_, _>>()?
    };
    let asked = job.shape.gpu.as_deref().map(|gpu| (gpu, job.shape.gpus_per_node));
    let on_gpu = job.measured.gpu.is_some();
    let mut found = Vec::new();
    for machine in machines {
        let own = machine.gpu.as_deref().map(|name| NodeGpus {
            name,
            count: machine.gpus,
            usd_per_hour: Some(0.0),
            built_in: true,
        });
        match (asked, own) {
            (Some((gpu, count)), Some(own)) if own.name == gpu && own.count == count => {
                found.push(NodeType { machine, gpus: Some(own) });
            }
            (Some(_), Some(_)) => {}
            (Some((gpu, count)), None) if catalogue.attaches(gpu, machine) => {
                found.push(NodeType { machine, gpus: Some(attached(catalogue, gpu, count)) });
            }
            (Some(_), None) => {}
            // A GPU that no one asked for is not paid for, unless the machine was named or the job needs one.
            (None, Some(own)) if on_gpu || !named.is_empty() => {
                found.push(NodeType { machine, gpus: Some(own) });
            }
            (None, Some(_)) => {}
            (None, None) if on_gpu => {
                let kinds = catalogue.gpus.iter().filter(|gpu| gpu.usd_per_hour.is_some());
                let kinds = kinds.filter(|gpu| catalogue.attaches(&gpu.name, machine));
                found.extend(kinds.map(|gpu| NodeType {
                    machine,
                    gpus: Some(attached(catalogue, &gpu.name, 1)),
                }));
            }
            (None, None) => found.push(NodeType { machine, gpus: None }),
        }
    }
    if found.is_empty() {
        return Err(CloudError::NoGpu {
            asked: asked
                .map_or_else(|| "a GPU".to_owned(), |(gpu, count)| format!("{count} {gpu}")),
            provider: catalogue.provider.name(),
            known: catalogue.gpu_words(),
        });
    }
    Ok(found)
}

fn attached<'a>(catalogue: &CloudCatalogue, name: &'a str, count: u32) -> NodeGpus<'a> {
    let price = catalogue.gpu(name).and_then(|gpu| gpu.usd_per_hour);
    let usd_per_hour = price.map(|usd| usd * f64::from(count));
    NodeGpus { name, count, usd_per_hour, built_in: false }
}

impl NodeType<'_> {
    /// How fast its GPUs are beside those measured: `None` where the job was measured on cores, an error where it is not known.
    pub(crate) fn speed(
        &self,
        job: &Job,
        catalogue: &CloudCatalogue,
    ) -> Result<Option<GpuSpeed>, String> {
        let (Some(measured), Some(gpus)) = (&job.measured.gpu, &self.gpus) else { return Ok(None) };
        if measured == gpus.name {
            return Ok(Some(GpuSpeed::SAME));
        }
        let known = |name: &str| catalogue.gpu_speed(name);
        let both = known(gpus.name).zip(known(measured));
        match both.and_then(|(gpu, measured)| GpuSpeed::between(&gpu, &measured)) {
            Some(speed) => Ok(Some(speed)),
            None => Err(format!("speed of {} beside {measured} not known", gpus.name)),
        }
    }
}

impl CloudCatalogue {
    /// A GPU of this catalogue.
    pub(crate) fn gpu(&self, name: &str) -> Option<&GpuType> {
        self.gpus.iter().find(|gpu| gpu.name == name)
    }

    /// What is known of its speed, from this catalogue or the shipped list.
    fn gpu_speed(&self, name: &str) -> Option<GpuType> {
        let own = self.gpu(name).filter(|gpu| gpu.memory_gb_per_s.is_some());
        own.cloned().or_else(|| GpuType::shipped().into_iter().find(|gpu| gpu.name == name))
    }

    /// Whether a GPU can be rented beside this machine: one of a name that is not in the list where others can.
    fn attaches(&self, gpu: &str, machine: &MachineType) -> bool {
        let fits = |kind: &GpuType| {
            kind.attaches_to.as_ref().is_none_or(|prefix| machine.name.starts_with(prefix))
        };
        match self.gpu(gpu) {
            Some(kind) => kind.usd_per_hour.is_some() && fits(kind),
            None if self.gpus.is_empty() => self.machines.iter().all(|other| other.gpu.is_none()),
            None => self.gpus.iter().any(|kind| kind.usd_per_hour.is_some() && fits(kind)),
        }
    }

    /// Which GPUs there are, and with what.
    fn gpu_words(&self) -> String {
        let built_in = self.machines.iter().filter_map(|machine| {
            Some(format!("{} with {} {}", machine.name, machine.gpus, machine.gpu.as_ref()?))
        });
        let attached = self.gpus.iter().filter(|gpu| gpu.usd_per_hour.is_some()).map(|gpu| {
            let prefix = gpu.attaches_to.as_deref().unwrap_or_default();
            format!("{} beside {prefix}*", gpu.name)
        });
        let words: Vec<String> = built_in.chain(attached).collect();
        if words.is_empty() { "none".to_owned() } else { words.join(", ") }
    }
}

#[cfg(test)]
mod tests {
    use crate::{CloudCatalogue, Job, Objective, Plan, Provider};

    fn plan(provider: Provider, measured: &str, more: &str) -> Result<Plan, crate::CloudError> {
        let text = format!(
            "name = 'cnn'\n[data]\ngb = 22\nexamples = 367000\n[measured]\nexamples_per_second = 400\n{measured}\n{more}"
        );
        let job = Job::parse("job.toml", &text)?;
        Plan::new(&job, &CloudCatalogue::shipped(provider)?, Objective::Time)
    }

    #[test]
    fn gpus_cost_what_the_catalogue_says_and_their_price_is_missing_where_it_says_nothing() {
        let with = |gpu: &str| {
            let shape = "[shape]\nmachines = ['n1-standard-2']\nmax_nodes = 2\n";
            let asked = format!("{shape}gpus_per_node = 1\ngpu = '{gpu}'\n");
            plan(Provider::Gcp, "cores = 2", &asked).unwrap()
        };
        // K80 are not rented any more, so that the shipped catalogue has no price of them.
        let without = with("K80");
        assert_eq!((without.gpu_price_known, without.chosen().gpus), (false, 2));
        for gpu in CloudCatalogue::shipped(Provider::Gcp).unwrap().gpus {
            let plan = with(&gpu.name);
            assert!(plan.gpu_price_known);
            let more = plan.chosen().usd - without.chosen().usd;
            let gpus = 2.0 * gpu.usd_per_hour.unwrap() * plan.chosen().seconds / 3600.0;
            assert!((more - gpus).abs() < 1e-9, "{}: {more}", gpu.name);
        }
    }

    #[test]
    fn a_gpu_that_was_not_asked_for_is_not_in_a_plan() {
        for provider in Provider::ALL {
            let plan = plan(provider, "cores = 2", "").unwrap();
            assert!(plan.shapes.iter().all(|shape| shape.gpus == 0), "{provider:?}");
        }
    }

    #[test]
    fn gpus_come_with_the_machines_that_have_them_and_make_cores_no_faster() {
        let asked = "[shape]\nmax_nodes = 1\ngpu = 'T4'\ngpus_per_node = 1\n";
        let aws = plan(Provider::Aws, "cores = 2", asked).unwrap();
        assert_eq!(aws.chosen().machine, "g4dn.xlarge");
        assert_eq!((aws.chosen().gpus, aws.chosen().gpu_speed), (1, None));
        // Four cores at 200 a second each, whatever stands beside them.
        assert!((aws.chosen().parts.compute - 367_000.0 / 800.0).abs() < 1e-9);
        let hour = aws.chosen().usd / aws.chosen().seconds * 3600.0;
        assert!(hour > 0.526 && hour < 0.6, "the GPU is in the machine's price: {hour}");
        let none = plan(Provider::Aws, "cores = 2", &asked.replace("T4", "V100")).unwrap_err();
        assert!(none.is_usage() && none.to_string().contains("g4dn.xlarge with 1 T4"), "{none}");
        // An E2 machine takes no GPU.
        let gcp = plan(Provider::Gcp, "cores = 2", asked).unwrap();
        assert!(gcp.shapes.iter().all(|shape| shape.machine.starts_with("n1-")));
    }

    #[test]
    fn a_rate_of_one_gpu_becomes_that_of_another_within_what_both_are_made_for() {
        let measured = "gpu = 'T4'";
        let gcp = plan(Provider::Gcp, measured, "[shape]\nmax_nodes = 1\n").unwrap();
        let of = |gpu: &str| {
            let found = gcp.shapes.iter().find(|shape| shape.gpu.as_deref() == Some(gpu));
            found.unwrap_or_else(|| panic!("no shape with {gpu}"))
        };
        let (same, faster) = (of("T4"), of("V100"));
        assert_eq!(same.gpu_speed.map(|speed| (speed.low, speed.high)), Some((1.0, 1.0)));
        assert!((same.parts.compute - 367_000.0 / 400.0).abs() < 1e-9, "{same:?}");
        let speed = faster.gpu_speed.unwrap();
        assert!(
            (speed.low - 125.0 / 65.0).abs() < 1e-9 && (speed.high - 900.0 / 320.0).abs() < 1e-9
        );
        assert!((faster.parts.compute - 367_000.0 / 400.0 / speed.expected).abs() < 1e-9);
        assert!(faster.high / faster.low > same.high / same.low, "less is known of it");
        // Two of them, with the rate of two.
        let two = "gpu = 'T4'\ngpus = 2";
        let asked = "[shape]\nmax_nodes = 1\ngpu = 'T4'\ngpus_per_node = 2\n";
        let two = plan(Provider::Gcp, two, asked).unwrap();
        assert_eq!((two.chosen().gpus, two.chosen().parts.compute), (2, same.parts.compute));
    }

    #[test]
    fn where_no_source_tells_a_gpus_speed_it_is_left_out_and_counted() {
        let aws = plan(Provider::Aws, "gpu = 'T4'", "[shape]\nmax_nodes = 1\n").unwrap();
        assert!(aws.shapes.iter().all(|shape| shape.gpu.as_deref() != Some("A10G")));
        let reasons: Vec<&String> = aws.refused.keys().collect();
        assert_eq!(reasons, ["speed of A10G beside T4 not known"]);
        // What was measured on the very one needs no source.
        let own = plan(Provider::Aws, "gpu = 'A10G'", "[shape]\nmax_nodes = 1\n").unwrap();
        assert!(own.chosen().machine.starts_with("g5."), "{:?}", own.chosen());
    }

    #[test]
    fn a_rate_is_of_cores_or_of_gpus() {
        for measured in ["cores = 2\ngpu = 'T4'", "", "cores = 2\ngpus = 2", "gpu = 'T4'\ngpus = 0"]
        {
            let error = plan(Provider::Gcp, measured, "").unwrap_err();
            assert!(
                error.is_usage() && error.to_string().contains("measured."),
                "{measured}: {error}"
            );
        }
    }
}

//! Links as a tree of files tells them, and what is wrong with them.

use super::*;

/// `/sys` of a machine: each device below the one before it, with speed and width now and at most.
fn device(ends: &[(&str, [&str; 4])]) -> (tempfile::TempDir, Device) {
    let sys = tempfile::tempdir().unwrap();
    let mut path = sys.path().join("devices/pci0000:00");
    for (address, [speed, width, max_speed, max_width]) in ends {
        path = path.join(address);
        fs::create_dir_all(&path).unwrap();
        for (file, text) in [
            ("current_link_speed", speed),
            ("current_link_width", width),
            ("max_link_speed", max_speed),
            ("max_link_width", max_width),
        ] {
            if !text.is_empty() {
                fs::write(path.join(file), format!("{text}\n")).unwrap();
            }
        }
    }
    fs::write(path.join("numa_node"), "1\n").unwrap();
    let bus = sys.path().join("bus");
    fs::create_dir_all(&bus).unwrap();
    let address = ends.last().unwrap().0;
    std::os::unix::fs::symlink(&path, bus.join(address)).unwrap();
    let device = Device::below(&bus, address).unwrap();
    (sys, device)
}

const ROOT: &str = "0000:00:01.0";
const GPU: &str = "0000:3b:00.0";
const GEN5: &str = "32.0 GT/s PCIe";
const GEN4: &str = "16.0 GT/s PCIe";

fn links(ends: &[(&str, [&str; 4])]) -> Vec<Link> {
    device(ends).1.links()
}

#[test]
fn rates_are_those_of_the_specification() {
    // 32 GT/s × 16 lanes × 128/130 / 8 = 63.0 GB/s; 2.5 GT/s × 8/10 / 8 = 0.25 GB/s a lane.
    let rate = |generation, lanes| Speed::of(generation, lanes).unwrap().gb_per_s();
    for (found, right) in [(rate(5, 16), 63.015), (rate(4, 16), 31.508), (rate(3, 4), 3.938), (rate(1, 1), 0.25)] {
        assert!((found - right).abs() < 0.001, "{found} for {right}");
    }
    assert_eq!((Speed::of(0, 16), Speed::of(7, 16)), (None, None));
}

#[test]
fn a_good_link_has_no_advice() {
    let links = links(&[(ROOT, [GEN5, "16", GEN5, "16"]), (GPU, [GEN5, "16", GEN5, "16"])]);
    assert_eq!(links.len(), 1);
    assert_eq!(links[0].to_string(), "gen 5 x16 now; 0000:3b:00.0 can do gen 5 x16, its port 0000:00:01.0 gen 5 x16");
    assert!(advice(&links).is_empty(), "{:?}", advice(&links));
}

#[test]
fn each_fault_has_its_words() {
    let one = |ends: &[(&str, [&str; 4])]| {
        let words = advice(&links(ends));
        assert_eq!(words.len(), 1, "{words:?}");
        words[0].clone()
    };
    let narrow = one(&[(ROOT, [GEN5, "8", GEN5, "16"]), (GPU, [GEN5, "8", GEN5, "16"])]);
    assert!(narrow.contains("has 8 lanes and both ends can do 16") && narrow.contains("reseat"), "{narrow}");
    let slow = one(&[(ROOT, [GEN4, "16", GEN5, "16"]), (GPU, [GEN4, "16", GEN5, "16"])]);
    assert!(slow.contains("runs at gen 4 x16 under load"), "{slow}");
    let slot = one(&[(ROOT, [GEN4, "16", GEN4, "16"]), (GPU, [GEN4, "16", GEN5, "16"])]);
    assert!(slot.contains("the slot limits: port 0000:00:01.0 can do gen 4 x16, the GPU gen 5 x16"), "{slot}");
    // Behind a switch whose own link is narrower.
    let ends = [
        (ROOT, [GEN5, "8", GEN5, "8"]),
        ("0000:01:00.0", [GEN5, "8", GEN5, "8"]),
        ("0000:02:04.0", [GEN5, "16", GEN5, "16"]),
        (GPU, [GEN5, "16", GEN5, "16"]),
    ];
    let switch = one(&ends);
    assert!(switch.contains("slower link (gen 5 x8 at 0000:01:00.0)"), "{switch}");
    assert_eq!(slowest(&links(&ends)).unwrap().now, Speed::of(5, 8).unwrap());
}

#[test]
fn what_a_virtual_machine_does_not_tell_is_not_made_up() {
    let (_sys, gpu) = device(&[(GPU, ["Unknown", "0", "Unknown", "255"])]);
    assert_eq!((gpu.links(), gpu.node), (Vec::new(), Some(1)));
    let (_sys, gpu) = device(&[(GPU, ["", "", "", ""])]);
    assert_eq!(gpu.links(), []);
    assert!(advice(&[]).is_empty() && slowest(&[]).is_none());
    // The device tells, its port does not: then only the device's own maximum counts.
    let half = links(&[(GPU, [GEN4, "16", GEN5, "16"])]);
    assert!(half[0].to_string().contains("its port is not shown"), "{}", half[0]);
    assert!(advice(&half)[0].contains("gen 4 x16 under load"));
    assert!(Device::below(Path::new("/nonexistent"), GPU).is_none());
}
